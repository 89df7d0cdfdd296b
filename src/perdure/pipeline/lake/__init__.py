"""Where tables live: directories and object stores, catalogs, and how rows are laid out there."""
