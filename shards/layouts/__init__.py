"""One file or package for each layout of messages in a generation; registry names them."""
