# A module that is not installed.
print("= before")
import parity_no_such_module

print("= never", parity_no_such_module)
