"""What builds and checks this repository; nothing here is part of the installed library."""
