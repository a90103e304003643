"""The shared kernel of masters, workers and the command line; imports none of them."""
