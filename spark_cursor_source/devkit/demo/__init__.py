"""The demo of ``cursorq demo``: a broker, a consumer that is killed, a tracker, and a verdict."""
