# The gateway: docker build -t aera . && docker run -p 8001:8001 -e AERA_KEYS=... -e AERA_UPSTREAM=... aera
FROM python:3.11-slim
WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY aera aera
RUN pip install --no-cache-dir --constraint constraints.txt '.[serve]' && useradd --create-home aera
USER aera
ENV AERA_HOST=0.0.0.0 AERA_PORT=8001
EXPOSE 8001
HEALTHCHECK CMD python -c "import urllib.request as u; import os; u.urlopen('http://127.0.0.1:%s/health' % os.environ.get('AERA_PORT', '8001'))"
ENTRYPOINT ["aera", "serve"]
CMD ["--model", "default"]
