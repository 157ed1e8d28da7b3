"""One picture a file: pure functions from a `View` to a `Chart`. `fairway.report.plots` is how users reach them."""
