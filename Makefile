# Two commands set everything up on a fresh machine: `make demo` and `make test`.

PYTHON ?= python3
BIN := .venv/bin

# Each daemon, worker and command that runs from these sources would compile them again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: lock demo test check unit bench pictures torture mutants docs clean help install
.PHONY: install-program install-environment install-files share uninstall dist deb package wheels

help:
	@echo "make demo    run the main job on this machine, with progress and a Gantt picture"
	@echo "make test    lint, types, import contracts and all tests"
	@echo "make docs    the documentation as a site, in docs-output/"
	@echo "make pictures  draw hetctl top and the page of hetctl web for the documentation"
	@echo "make bench   measure; JSON on standard output (BENCH=name for one of them, PEERS=1: beside Dask, Ray)"
	@echo "make torture 10,000 kills, every fault point, a soak, a simulation: JSON in torture-output/"
	@echo "make mutants small changes of scheduler and store that the unit tests should notice (MINUTES, ONLY)"
	@echo "make dist    one wheel and an sdist, in dist/"
	@echo "make wheels  a wheel of compiled modules of the scheduler, optional, in dist/"
	@echo "make deb     a Debian package, in dist/"
	@echo "make lock    pin and hash what is installed, anew: lock/"
	@echo "make install (as root) the daemon as a service, for all users: docs/operating.md"
	@echo "make clean   remove what was installed and produced"

.venv/installed-demo: pyproject.toml
	@$(PYTHON) -c 'import ensurepip, sys; print("Python", sys.version.split()[0], "at", sys.executable); \
	  sys.version_info >= (3, 11) or sys.exit("hetd needs Python 3.11 or newer: make PYTHON=...")'
	@echo "installing hetd and its packages into .venv: once, a minute or two"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/pip install --progress-bar off --editable '.[demo]'
	touch $@

.venv/installed-dev: .venv/installed-demo
	$(BIN)/pip install --quiet --editable '.[demo,parquet,metrics,top,pool]' --group dev
	touch $@

demo: .venv/installed-demo
	$(BIN)/python -m hetdemo

# side by side: type checking uses one processor
test: .venv/installed-dev
	@$(MAKE) --no-print-directory -j2 check unit

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/codespell

# Files side by side; three for two processors, as half of the time of tests is waiting. In the
# order of tests/conftest.py: short files come last and fill both processors. One that dies is
# not replaced: the run would wait for ever if no test is left for the new one.
TESTS_AT_ONCE ?= 3
# of the order within files and of what tests draw; `last` repeats the one before
RANDOM_SEED ?= 1

unit: .venv/installed-dev
	$(BIN)/pytest -n $(TESTS_AT_ONCE) --dist loadfile --no-loadscope-reorder \
	  --max-worker-restart=0 --randomly-seed=$(RANDOM_SEED)

# strict: a warning is an error; the notice is of the site generator about itself
docs: .venv/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

pictures: .venv/installed-dev
	$(BIN)/python -m hetdemo.pictures docs/images

# Dask and Ray to compare with, in an environment of their own: hetd does not use them
PEERS ?=

.venv-peers/installed:
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --progress-bar off distributed ray
	touch $@

bench: export HETBENCH_PEERS := $(if $(PEERS),$(CURDIR)/.venv-peers/bin/python)
bench: .venv/installed-dev $(if $(PEERS),.venv-peers/installed)
	$(BIN)/python -m hetbench $(BENCH)

# three hours on 2 quick cores, most of it `simulate`, ten on slow ones; a run that is done is not
# done again
TORTURE := points kills workers moves pool calls soak simulate builds $(if $(filter 0,$(shell id -u)),powercuts)
SOAK_MINUTES ?= 10

# changes the code in small ways: which does no unit test notice?
MINUTES ?= 10

mutants: .venv/installed-dev
	$(BIN)/python tests/mutants.py --minutes $(MINUTES) $(if $(ONLY),--only $(ONLY))

torture: $(TORTURE:%=torture-output/torture-%.json) torture-output/torture-cases.xml

# tests of the suite, with more cases
CASES := HETD_FUZZ_LIARS=200000 HETD_FUZZ_ZMTP=2000000 HETD_FUZZ_BODIES=1000000 \
	HETD_FUZZ_FLIPS=100000 HETD_RESTARTS=1000 HETD_KERNEL_CASES=all HETD_DEMOS=all \
	HETD_HOSTILE_WAITING=100000 HETD_ATTACK_SECONDS=20 HETD_ATTACKS=30 HETD_FRESH_CASES=2000 \
	HETD_GRAPH_KILLS=20 HETD_CORE_EXAMPLES=300 HETD_COMPILED_TESTS=all
CASES_IN := tests/hostile tests/unit/libtask/snapshots/test_refused_files.py \
	tests/system/test_many_restarts.py tests/system/test_systemd.py \
	tests/system/test_fresh_code.py tests/system/test_graph_kills.py \
	tests/hardware/test_kernels_under_oclgrind.py tests/hardware/test_faulty_nodes.py \
	tests/hardware/test_microarchitectures.py tests/pool/test_demo.py \
	tests/property/test_core.py tests/sim/test_compiled_build.py

torture-output/torture-cases.xml: .venv/installed-dev
	@mkdir -p torture-output
	$(CASES) $(BIN)/pytest --junit-xml $@.new $(CASES_IN)
	mv $@.new $@

# with the wheel, which is not installed for that
torture-output/torture-builds.json: export HETD_WHEEL := $(CURDIR)/torture-output/wheel
torture-output/torture-builds.json: torture-output/wheel

torture-output/wheel: .venv/installed-dev
	$(MAKE) --no-print-directory wheels
	mkdir -p $@
	cd $@ && $(abspath $(BIN))/python -m zipfile -e $(CURDIR)/dist/hetd_compiled-*.whl .

torture-output/torture-%.json: .venv/installed-dev
	@mkdir -p torture-output
	PYTHONPATH=tests $(BIN)/python -m torture $* $(OPTIONS_$*) > $@.new || { cat $@.new; exit 1; }
	mv $@.new $@

OPTIONS_points := --json
OPTIONS_kills := --seeds 20 --count 500 --json
OPTIONS_workers := --seeds 20 --count 100 --json
OPTIONS_moves := --seeds 4 --count 1000 --json
OPTIONS_pool := --seeds 15 --count 20 --json
OPTIONS_builds := --seeds 1000 --json
OPTIONS_calls := --seeds 10 --count 50 --json
OPTIONS_soak := --minutes $(SOAK_MINUTES) --json
SEEDS ?= 100000
OPTIONS_simulate := --seeds $(SEEDS) --json
OPTIONS_powercuts := --cuts 200

# The packages that `make install` installs, each with the hashes of its files: for every
# platform and Python that uv knows of. Those of extras hold the others too.
LOCKED := fpga-emulator nvidia plots metrics top parquet joblib pool demo
LOCKING := pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-annotate --no-header --upgrade

lock: .venv/installed-dev
	$(PYTHON) -m venv lock-output
	lock-output/bin/pip install --quiet uv
	lock-output/bin/uv $(LOCKING) pyproject.toml -o lock/hetd.txt
	for extra in $(LOCKED); do \
	  lock-output/bin/uv $(LOCKING) pyproject.toml --extra $$extra --constraint lock/hetd.txt \
	    -o lock/$$extra.txt || exit 1; \
	done
	grep -A 1 '^\[build-system\]' pyproject.toml | grep -o 'hatchling[^"]*' | \
	  lock-output/bin/uv $(LOCKING) - -o lock/build.txt
	rm -r lock-output

clean:
	rm -rf .venv .venv-peers dist lock-output docs-output torture-output demo-output bench-output .mypy_cache .ruff_cache .pytest_cache .hypothesis

# ------------------------------------------------------------ as a service
#
# The program lives in an environment of its own, $(libdir)/hetd, with wrappers in
# $(bindir). DESTDIR stages everything for a package. EXTRAS=fpga-emulator,nvidia,plots
# installs those optional parts too.

DESTDIR ?=
EXTRAS ?=
prefix ?= /usr/local
sysconfdir ?= /etc
bindir ?= $(prefix)/bin
libdir ?= $(prefix)/lib
datadir ?= $(prefix)/share
unitdir ?= $(libdir)/systemd/system
userunitdir ?= $(libdir)/systemd/user

HOME_OF_PROGRAM := $(libdir)/hetd
STAGED := $(DESTDIR)$(HOME_OF_PROGRAM)
FRESH := $(STAGED).new
PROGRAMS := hetd hetctl hetsim
SHELLS := bash zsh fish
COMPLETION_bash := bash-completion/completions/hetctl
COMPLETION_zsh := zsh/site-functions/_hetctl
COMPLETION_fish := fish/vendor_completions.d/hetctl.fish
UNITS := $(unitdir)/hetd.service $(unitdir)/hetd.socket $(userunitdir)/hetd.service \
	$(userunitdir)/hetd.socket $(userunitdir)/hetd-launcher.service \
	$(userunitdir)/hetpool-scheduler.service $(userunitdir)/hetpool-node.service
FILL_IN = sed -e 's|@bindir@|$(bindir)|; s|@libdir@|$(libdir)|; s|@sysconfdir@|$(sysconfdir)|'
PAGES := man8/hetd.8 man1/hetctl.1 man1/hetsim.1 man5/hetd.toml.5

# Root's umask may keep other users out; they need all that is installed.
install:
	umask 022 && $(MAKE) --no-print-directory install-program install-files
	@$(PYTHON) -c 'import os, sys; real = os.path.realpath(sys.executable); \
	  real.startswith(("/root/", "/home/", "/run/user/")) and print(f"warning: {real} is in a home: the \
	service and other users cannot run it; make install PYTHON=/usr/bin/python3")'
	@echo "now: systemd-sysusers && systemd-tmpfiles --create hetd.conf && systemctl daemon-reload"
	@echo "     systemctl enable --now hetd.socket"

# Nothing that is installed may name DESTDIR: no scripts of the environment, but wrappers;
# byte code with the paths of its later place. What was installed before is there until the
# new one is complete: it may be running, and a package index may fail.
install-program: install-environment
	rm $(FRESH)/lib/python*/site-packages/hetd-*.dist-info/direct_url.json
	$(FRESH)/bin/python -m compileall -q -f -s '$(FRESH)' -p '$(HOME_OF_PROGRAM)' $(FRESH)/lib || true
	sed -i '/^command = /d' $(FRESH)/pyvenv.cfg
	find $(FRESH)/bin -mindepth 1 ! -name 'python*' -delete
	rm -rf $(STAGED).old
	test ! -e $(STAGED) || mv $(STAGED) $(STAGED).old
	mv $(FRESH) $(STAGED)
	rm -rf $(STAGED).old
	install -d $(DESTDIR)$(bindir)
	for name in $(PROGRAMS); do \
	  printf '#!/bin/sh\nexec %s/bin/python -P -m %s "$$@"\n' $(HOME_OF_PROGRAM) $$name \
	    > $(DESTDIR)$(bindir)/$$name && chmod 755 $(DESTDIR)$(bindir)/$$name || exit 1; \
	done
	$(MAKE) --no-print-directory share SHARE=$(DESTDIR)$(datadir) GENERATOR='$(STAGED)/bin/python -P'

# What is fetched has the hashes of lock/, what builds the program as well; what installs
# goes again. SITE names folders (A:B) with all of these, the builder included: they are then used
# where they are, and nothing is fetched.
comma := ,
SITE ?=
install-environment:
ifeq ($(SITE),)
	$(PYTHON) -m venv --clear $(FRESH)
	$(PYTHON) -m venv --clear $(FRESH)/build
	$(FRESH)/build/bin/python -m pip install --quiet --require-hashes -r lock/build.txt
	$(FRESH)/build/bin/python -m pip wheel --quiet --no-deps --no-build-isolation \
	  --wheel-dir $(FRESH)/build/wheel .
	$(FRESH)/bin/python -m pip install --quiet --no-compile --require-hashes \
	  $(patsubst %,-r lock/%.txt,$(or $(subst $(comma), ,$(EXTRAS)),hetd))
	$(FRESH)/bin/python -m pip install --quiet --no-compile --no-deps --no-index \
	  $(FRESH)/build/wheel/*.whl
	$(FRESH)/bin/python -m pip uninstall --quiet --yes setuptools pip
else
	$(PYTHON) -m venv --clear --without-pip $(FRESH)
	PYTHONPATH='$(SITE)' $(FRESH)/bin/python -m hatchling build -t wheel -d $(FRESH)/build
	PYTHONPATH='$(SITE)' $(FRESH)/bin/python -m pip install --quiet --no-compile --no-deps \
	  --no-index --ignore-installed $(FRESH)/build/*.whl
	echo '$(SITE)' | tr : '\n' > $$(echo $(FRESH)/lib/python*/site-packages)/dependencies.pth
endif
	rm -r $(FRESH)/build

# Man pages and completions are generated from the code: below SHARE, by the Python that
# GENERATOR starts, which has the program.
share:
	PYTHONPATH=tools $(GENERATOR) -m hetdocs.manpages docs/man $(SHARE)/pages
	for page in $(PAGES); do \
	  install -D -m 644 $(SHARE)/pages/$${page#*/} $(SHARE)/man/$$page || exit 1; \
	done
	rm -r $(SHARE)/pages
	$(foreach shell,$(SHELLS),install -d $(SHARE)/$(dir $(COMPLETION_$(shell))) && \
	  $(GENERATOR) -m hetctl completion $(shell) > $(SHARE)/$(COMPLETION_$(shell)) &&) true

# Units, users and the configuration; one that is there already is kept.
install-files:
	install -d $(DESTDIR)$(unitdir) $(DESTDIR)$(userunitdir)
	$(FILL_IN) systemd/system/hetd.service.in > $(DESTDIR)$(unitdir)/hetd.service
	$(FILL_IN) systemd/user/hetd.service.in > $(DESTDIR)$(userunitdir)/hetd.service
	for unit in hetd-launcher hetpool-scheduler hetpool-node; do \
	  $(FILL_IN) systemd/user/$$unit.service.in \
	    > $(DESTDIR)$(userunitdir)/$$unit.service || exit 1; \
	done
	install -m 644 systemd/system/hetd.socket $(DESTDIR)$(unitdir)/hetd.socket
	install -m 644 systemd/user/hetd.socket $(DESTDIR)$(userunitdir)/hetd.socket
	install -D -m 644 systemd/sysusers.d/hetd.conf $(DESTDIR)$(libdir)/sysusers.d/hetd.conf
	install -D -m 644 systemd/tmpfiles.d/hetd.conf $(DESTDIR)$(libdir)/tmpfiles.d/hetd.conf
	test -e $(DESTDIR)$(sysconfdir)/hetd/hetd.toml || \
	  install -D -m 644 systemd/hetd.toml $(DESTDIR)$(sysconfdir)/hetd/hetd.toml

# Configuration, tasks (/var/lib/hetd), users and groups stay.
uninstall:
	rm -rf $(STAGED) $(FRESH) $(STAGED).old
	rm -f $(addprefix $(DESTDIR)$(bindir)/,$(PROGRAMS)) $(addprefix $(DESTDIR),$(UNITS))
	rm -f $(addprefix $(DESTDIR)$(datadir)/man/,$(PAGES))
	rm -f $(foreach shell,$(SHELLS),$(DESTDIR)$(datadir)/$(COMPLETION_$(shell)))
	rm -f $(DESTDIR)$(libdir)/sysusers.d/hetd.conf $(DESTDIR)$(libdir)/tmpfiles.d/hetd.conf

# ------------------------------------------------------------ packages
#
# The sdist holds the generated files, in share/, and the wheel is built from it: what the
# sdist lacked would be missing in the test of the wheel.

VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
SOURCES := dist/sources/hetd-$(VERSION)

dist: .venv/installed-dev
	rm -rf dist/sources dist/*.whl dist/*.tar.gz
	$(BIN)/python -m hatchling build -t sdist -d dist/sources
	tar -xzf $(SOURCES).tar.gz -C dist/sources
	$(MAKE) --no-print-directory -C $(SOURCES) share SHARE=share GENERATOR=$(abspath $(BIN))/python
	cd $(SOURCES) && $(abspath $(BIN))/python -m hatchling build -d $(CURDIR)/dist
	rm -r dist/sources

# Optional: modules of hetsched and hetsim compiled from these sources, for this machine and Python. Some
# three minutes; it needs a C compiler.
wheels: .venv/installed-dev
	rm -f dist/hetd_compiled-*.whl
	cd daemon/compiled && $(abspath $(BIN))/python -m hatchling build -t wheel -d $(CURDIR)/dist

# The whole program with its dependencies in /usr/lib/hetd, for the machine's own Python:
# compiled modules fit this version of it alone. EXTRAS as for `make install`.
DEB_PYTHON ?= /usr/bin/python3
DEB_COMPRESSION ?= xz
DEB_ROOT := dist/deb
DEB_MINOR = $(shell $(DEB_PYTHON) -c 'import sys; print(sys.version_info[1])')
DEB_NEXT = $(shell $(DEB_PYTHON) -c 'import sys; print(sys.version_info[1] + 1)')
DEB_ARCHITECTURE = $(shell dpkg --print-architecture)
DEB_FILE = dist/hetd_$(VERSION)-1_$(DEB_ARCHITECTURE).deb

deb:
	umask 022 && $(MAKE) --no-print-directory package

package:
	rm -rf $(DEB_ROOT)
	$(MAKE) --no-print-directory install-program install-files DESTDIR=$(CURDIR)/$(DEB_ROOT) \
	  prefix=/usr PYTHON=$(DEB_PYTHON) COMPLETION_zsh=zsh/vendor-completions/_hetctl
	gzip -9n $(addprefix $(DEB_ROOT)/usr/share/man/,$(PAGES))
	install -D -m 644 README.md $(DEB_ROOT)/usr/share/doc/hetd/README.md
	install -d $(DEB_ROOT)/DEBIAN
	install -m 755 debian/postinst debian/prerm debian/postrm $(DEB_ROOT)/DEBIAN
	echo /etc/hetd/hetd.toml > $(DEB_ROOT)/DEBIAN/conffiles
	sed -e 's|@version@|$(VERSION)-1|; s|@architecture@|$(DEB_ARCHITECTURE)|' \
	  -e 's|@minor@|$(DEB_MINOR)|; s|@next@|$(DEB_NEXT)|' \
	  -e "s|@size@|$$(du -sk --exclude=DEBIAN $(DEB_ROOT) | cut -f1)|" \
	  debian/control.in > $(DEB_ROOT)/DEBIAN/control
	cd $(DEB_ROOT) && find usr -type f -exec md5sum {} + > DEBIAN/md5sums
	dpkg-deb --root-owner-group -Z$(DEB_COMPRESSION) --build $(DEB_ROOT) $(DEB_FILE).new
	mv $(DEB_FILE).new $(DEB_FILE)
	rm -r $(DEB_ROOT)
