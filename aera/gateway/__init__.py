"""The gateway: voted answers behind the OpenAI API. `votes` decides, `server` speaks HTTP."""
