// The docs are checked here.
