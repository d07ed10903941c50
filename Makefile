# Every target sets up .venv first. Another interpreter: make test PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A package that ships models with their weights; nothing of it is run. Prints where its text detector is.
MODELS := rapidocr-onnxruntime==1.4.4
DETECTOR := from importlib.util import find_spec; print(find_spec("rapidocr_onnxruntime").submodule_search_locations[0] + "/models/ch_PP-OCRv4_det_infer.onnx")

.PHONY: help venv demo demo-kernels smoke test campaign lint format typecheck bench results further reported filters golden docs release clean

help:
	@echo "make demo       compile a text detector and race it with onnxruntime; make demo-kernels: its convolutions"
	@echo "make smoke      run a test of each kind, in a minute"
	@echo "make test       run the tests"
	@echo "make campaign   try random and real convolutions for an hour (SECONDS=60: a minute)"
	@echo "make lint       check style"
	@echo "make typecheck  check types"
	@echo "make format     put the code into style"
	@echo "make golden     write the golden files of scheduled IR again"
	@echo "make bench      compare with PyTorch, onnxruntime and OpenVINO on all suites in f32"
	@echo "make results    do so in all types and layouts, and write the tables in README.md and docs, and the pictures"
	@echo "make further    compare on layers that no suite has, by default schedules, and write benchmarks/results/further.md"
	@echo "make filters    compare on weight-bound layers, and write benchmarks/results/filters.md"
	@echo "make reported   compare on shapes of bug reports, by default schedules, and write benchmarks/results/reported.md"
	@echo "make docs       build the pages of docs and of the API into build/site, and check their links"
	@echo "make release    build, check, tag and upload a release (.ci/release --dry: no tag, no upload)"
	@echo "make clean      remove what these made"

venv: $(VENV)/installed

$(VENV)/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "tvmconv needs Python 3.10 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[compile,onnx,dev]'
	touch $@

demo: venv
	$(BIN)/python -m pip install --quiet --no-deps $(MODELS)
	$(BIN)/tvmconv compile "$$($(BIN)/python -c '$(DETECTOR)')" --shape x=1x3x640x640 -o demo.so
	$(BIN)/tvmconv run demo.so --bench --seconds 3 --against "$$($(BIN)/python -c '$(DETECTOR)')"
	$(BIN)/tvmconv report demo.so -o demo.html
	@echo "demo.so is compiled, and demo.html says where its time goes. Its kernels one by one: make demo-kernels"

demo-kernels: venv
	$(BIN)/python -m pip install --quiet --no-deps $(MODELS)
	$(BIN)/tvmconv build "$$($(BIN)/python -c '$(DETECTOR)')" --shape x=1x3x640x640 --with-filters --output demo.bundle
	$(BIN)/tvmconv verify demo.bundle
	$(BIN)/tvmconv bench demo.bundle
	$(BIN)/tvmconv report demo.bundle -o demo.html

smoke: venv
	$(BIN)/python -m pytest -m smoke -n auto --maxprocesses 2

test: venv
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

SECONDS := 3600
campaign: venv
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m tests.campaign --seconds $(SECONDS) --target host --target x86-64-v3

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

format: venv
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typecheck: venv
	$(BIN)/mypy

golden: venv
	$(BIN)/python -m pytest tests/golden --update-golden

bench: venv
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m benchmarks.compare

# Results stay beside those of other CPUs.
CPU = $$($(BIN)/python -c 'from tvmconv.targets.target import Target; print(Target.parse("host").name)')

results: SUITES = benchmarks/results/suites/$(CPU)
results: venv
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	mkdir -p $(SUITES)
	$(BIN)/python -m benchmarks.compare --output $(SUITES)/f32-nxc.json
	$(BIN)/python -m benchmarks.compare --untuned --output $(SUITES)/f32-nxc-untuned.json
	$(BIN)/python -m benchmarks.compare --layout ncx --output $(SUITES)/f32-ncx.json
	$(BIN)/python -m benchmarks.compare --dtype bf16 --output $(SUITES)/bf16-nxc.json
	# PyTorch's f16 convolutions take minutes: they are no rivals.
	$(BIN)/python -m benchmarks.compare --dtype f16 --peer onnxruntime --peer openvino_nxc --peer openvino_ncx \
		--output $(SUITES)/f16-nxc.json
	$(BIN)/python -m benchmarks.compare --target x86-64-v3 --output $(SUITES)/f32-nxc-x86-64-v3.json
	$(BIN)/python -m benchmarks.report benchmarks/results/suites/*/*.json --update benchmarks/results/suites.md
	$(BIN)/python -m benchmarks.front_page --update README.md
	$(BIN)/python -m benchmarks.report $(SUITES)/*.json --plots >/dev/null

further: FURTHER = $(BIN)/python -m benchmarks.compare further/vision further/generative further/sequences \
	further/volumes --untuned
further: OUTPUT = benchmarks/results/further/$(CPU)
further: venv
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	mkdir -p $(OUTPUT)
	$(FURTHER) --output $(OUTPUT)/f32.json
	$(FURTHER) --threads 1 --output $(OUTPUT)/f32-one-thread.json
	$(FURTHER) --dtype bf16 --output $(OUTPUT)/bf16.json
	$(FURTHER) --dtype bf16 --threads 1 --output $(OUTPUT)/bf16-one-thread.json
	$(BIN)/python -m benchmarks.report benchmarks/results/further/*/*.json --update benchmarks/results/further.md

reported: OUTPUT = benchmarks/results/reported/$(CPU)
filters: OUTPUT = benchmarks/results/filters/$(CPU)
filters: BF16 = $(BIN)/python -m benchmarks.compare $@ --untuned --dtype bf16 --output $(OUTPUT)/bf16-nxc.json
reported filters: venv
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	mkdir -p $(OUTPUT)
	$(BIN)/python -m benchmarks.compare $@ --untuned --output $(OUTPUT)/f32-nxc.json
	$(BIN)/python -m benchmarks.compare $@ --untuned --layout ncx --output $(OUTPUT)/f32-ncx.json
	$(BF16)
	$(BIN)/python -m benchmarks.report benchmarks/results/$@/*/*.json --update benchmarks/results/$@.md

docs: venv
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

release: venv
	.ci/release

clean:
	rm -rf $(VENV) build dist demo.bundle demo.html demo.so *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
