"""Ways to authenticate that ask somebody else: each a module, each with a line in
``config/schema/auth_methods.py``. What it must do is in ``broker/auth/method.py``."""
