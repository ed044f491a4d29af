"""Every way from somebody who writes to somebody who reads, with a right that is there, missing, or taken away."""
