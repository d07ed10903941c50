# Every target sets up .venv first. Another interpreter: make test PYTHON=python3.12
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Prints where the ONNX package keeps its light ResNet-50: the network without its weights.
RESNET50 := import onnx, pathlib; print(pathlib.Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx")

.PHONY: help venv demo test lint format typecheck bench results golden clean

help:
	@echo "make demo       build, verify and time ResNet-50's convolutions"
	@echo "make test       run the tests"
	@echo "make lint       check style"
	@echo "make typecheck  check types"
	@echo "make format     put the code into style"
	@echo "make golden     write the golden files of scheduled IR again"
	@echo "make bench      compare with PyTorch, onnxruntime and OpenVINO on all suites in f32"
	@echo "make results    do so in all types and layouts, and write the README's table and the pictures"
	@echo "make clean      remove what these made"

venv: $(VENV)/installed

$(VENV)/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "tvmconv needs Python 3.10 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[compile,onnx,dev]'
	touch $@

demo: venv
	$(BIN)/tvmconv build "$$($(BIN)/python -c '$(RESNET50)')" --output demo.bundle
	$(BIN)/tvmconv verify demo.bundle
	$(BIN)/tvmconv bench demo.bundle

test: venv
	$(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

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

results: venv
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	$(BIN)/python -m benchmarks.compare --output benchmarks/results/f32-nxc.json
	$(BIN)/python -m benchmarks.compare --untuned --output benchmarks/results/f32-nxc-untuned.json
	$(BIN)/python -m benchmarks.compare --layout ncx --output benchmarks/results/f32-ncx.json
	$(BIN)/python -m benchmarks.compare --dtype bf16 --output benchmarks/results/bf16-nxc.json
	# PyTorch's f16 convolutions take minutes: they are no rivals.
	$(BIN)/python -m benchmarks.compare --dtype f16 --peer onnxruntime --peer openvino_nxc --peer openvino_ncx \
		--output benchmarks/results/f16-nxc.json
	$(BIN)/python -m benchmarks.compare --target x86-64-v3 --output benchmarks/results/f32-nxc-x86-64-v3.json
	$(BIN)/python -m benchmarks.report benchmarks/results/*.json --update README.md --plots benchmarks/results

clean:
	rm -rf $(VENV) build dist demo.bundle *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
