# The gateway: docker build -t aera . && docker run -p 8001:8001 -e AERA_KEYS=... -e AERA_UPSTREAM=... aera
FROM python:3.11-slim
WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY aera aera
RUN pip install --no-cache-dir --constraint constraints.txt '.[serve]' && useradd --create-home aera
USER aera
ENV AERA_HOST=0.0.0.0 AERA_PORT=8001
EXPOSE 8001
# Asked directly, whatever proxy is set, and where the gateway listens: AERA_HOST and AERA_PORT, so set
# them rather than --host and --port.
HEALTHCHECK --timeout=5s CMD python -c "import http.client as h, os; e = os.environ.get; \
a = e('AERA_HOST', ''); c = h.HTTPConnection('localhost' if a in ('', '0.0.0.0', '::') else a, \
int(e('AERA_PORT', '8001')), timeout=4); c.request('GET', '/health'); \
raise SystemExit(c.getresponse().status != 200)"
ENTRYPOINT ["aera", "serve"]
CMD ["--model", "default"]
