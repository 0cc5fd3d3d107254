"""The gateway: voted answers behind the OpenAI API. `vote` decides, `app` speaks HTTP."""
