# The steps of tools/fresh_machine.sh: a bare Debian, the README's commands, the wheel in an environment of its own.
#   docker build --tag diskhop .
#   docker run --rm --volume "$PWD:/work" diskhop train my-graph --memory 2GB --out run
# Docker's default seccomp profile forbids io_uring; diskhop then reads by threads, and `diskhop doctor` says so.
FROM debian:bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends python3.11 python3.11-venv python3.11-dev g++ make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /diskhop
COPY . .
RUN make demo && rm -rf demo-data
RUN make test
RUN make wheel
RUN python3.11 -m venv /venv \
    && /venv/bin/pip install --no-cache-dir "$(sed -n 's/^TORCH ?= //p' Makefile)" \
    && /venv/bin/pip install --no-cache-dir dist/*.whl

FROM debian:bookworm
RUN apt-get update && apt-get install --yes --no-install-recommends python3.11 && rm -rf /var/lib/apt/lists/*
COPY --from=build /venv /venv
WORKDIR /work
ENTRYPOINT ["/venv/bin/diskhop"]
