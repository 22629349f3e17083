"""What people see, one module per noun. A view takes the object from its gate, calls one action, answers."""
