"""See it: pictures, a page and a live page of a study, all read from its log. Nothing here writes to one."""
