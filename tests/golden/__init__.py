"""What every recipe chose before the code was changed: the arms of whole runs, kept as text beside this file."""
