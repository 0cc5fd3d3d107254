"""The gateway: voted answers behind the OpenAI API. `voting` decides, `server` speaks HTTP."""
