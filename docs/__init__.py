"""The pages of the project, and the programs that make and check them."""
