# The same image as hack/image.py makes, for people who have a container engine.
FROM debian:bookworm-slim AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv
COPY requirements-dev.txt /src/
RUN python3 -m venv /opt/torchctl \
 && grep -oE '^[a-z0-9._-]+==[^ ;]+' /src/requirements-dev.txt > /src/constraints.txt
COPY pyproject.toml LICENSE README.md /src/
COPY hack/controlplane /src/hack/controlplane
COPY src /src/src
RUN /opt/torchctl/bin/pip install --no-cache-dir --constraint /src/constraints.txt /src \
 && /opt/torchctl/bin/pip uninstall -y pip setuptools \
 && python3 -m compileall -q --invalidation-mode unchecked-hash /opt/torchctl/lib

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates git openssh-client python3 \
 && rm -rf /var/lib/apt/lists/* \
 && echo 'torchctl:x:65532:65532:torchctl:/tmp:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'torchctl:x:65532:' >> /etc/group
COPY --from=build /opt/torchctl /opt/torchctl
ENV PATH=/opt/torchctl/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 LANG=C.UTF-8 HOME=/tmp
USER 65532:65532
ENTRYPOINT ["/opt/torchctl/bin/torchctl"]
