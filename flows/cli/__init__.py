"""The command line `genenv`."""
