"""One session over many devices: units of work, the dispatcher, the driver, and the engines that run it."""
