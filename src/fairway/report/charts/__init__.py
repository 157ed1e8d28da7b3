"""One theme a file: functions from a study to a `Chart`. `fairway.report.plots` is how users reach them."""
