# Entry points only: the build itself is CMakeLists.txt, the presets are in CMakePresets.json.
.DEFAULT_GOAL := build
.PHONY: help build setup demo demo-sft demo-less demo-dpo demo-rl test test-long faults parity parity-long tidy format check bench bench-text fuzz cuda gpu-test clean

# CMake does not look for nvcc where the toolkit's installer puts it.
NVCC := $(or $(shell command -v nvcc),$(wildcard /usr/local/cuda/bin/nvcc))

help:      ## this list
	@sed -n 's/^\([a-z-]*\): .*## \(.*\)/make \1\t\2/p' Makefile | expand -t 16

build: setup  ## set up and build build/release/bin/skein (CPU, no nvcc needed)
	@test -f build/release/build.ninja || cmake --preset release
	@cmake --build build/release

setup:     ## install what tools/packages.txt lists and this machine lacks
	@tools/setup.sh

demo: build  ## set up, build, train a small model, show it; again: continues; FRESH=1: starts over; QUICK=1: a few steps
	@tools/demo.sh $(if $(FRESH),--fresh) $(if $(QUICK),--quick)

demo-sft: build  ## the model of `make demo` (made if need be) learns to answer; asked before and after; FRESH=1, QUICK=1 as above
	@tools/demo_sft.sh $(if $(FRESH),--fresh) $(if $(QUICK),--quick)

demo-less: build  ## of ten tasks' rows those are found that help with one (make demo's model, made if need be); FRESH=1, QUICK=1
	@tools/demo_less.sh $(if $(FRESH),--fresh) $(if $(QUICK),--quick)

demo-dpo: build  ## a reward model, and DPO: demo-sft's model (made if need be) learns the preferred style; FRESH=1, QUICK=1
	@tools/demo_dpo.sh $(if $(FRESH),--fresh) $(if $(QUICK),--quick)

demo-rl: build  ## GRPO, and PPO with a reward model: demo-sft's model (made if need be) learns by trying; FRESH=1, QUICK=1
	@tools/demo_rl.sh $(if $(FRESH),--fresh) $(if $(QUICK),--quick)

test: build  ## set up, build, run all tests; of each matrix of cases a sample by a printed seed
	@python3 tools/run_tests.py

test-long: build  ## all tests with their whole matrices, and the whole demos (by hand; an hour on two cores)
	@python3 tools/run_tests.py --long
	@tools/demo.sh --fresh
	@tools/demo_sft.sh --fresh
	@tools/demo_less.sh --fresh
	@tools/demo_dpo.sh --fresh
	@tools/demo_rl.sh --fresh

faults: build  ## crash states, broken disks, killed runs: at length (20 minutes)
	@tests/faults/run.sh

parity: build  ## compare with transformers, peft, datasets, … in an environment of its own (5 GB)
	@tests/parity/run.sh

parity-long: build  ## the same with whole matrices (by hand)
	@SKEIN_LONG=1 tests/parity/run.sh

bench: build bench-text  ## CPU figures beside torchrun, tokenizers and datasets; on a quiet machine, after `make parity`
	@python3 benchmarks/cpu.py

bench-text: build  ## of these, the figures of text and rows, and the memory of loading (half an hour)
	@.deps/parity/bin/python benchmarks/text.py
	@.deps/parity/bin/python benchmarks/rows.py
	@python3 benchmarks/load_memory.py

fuzz:      ## libFuzzer on the parsers of outside bytes, FUZZ_SECONDS=600 for each
	@tools/setup.sh --fuzz
	@test -f build/fuzz/build.ninja || cmake --preset fuzz
	@cmake --build build/fuzz --target fuzzers
	@python3 tests/fuzz/run.py --seconds $(or $(FUZZ_SECONDS),600)

check:     ## format, layers, lengths, document paths
	@tools/setup.sh --check
	@tools/format.sh --check
	@python3 tools/check_layers.py
	@python3 tools/check_lengths.py
	@python3 tools/check_docs.py

tidy: build  ## clang-tidy on the files that tools/tidy_clean.txt does not list as clean
	@tools/setup.sh --check
	@python3 tools/tidy.py

format:    ## clang-format all C++ and CUDA files in place
	@tools/setup.sh --check
	@tools/format.sh

cuda:      ## build with CUDA kernels and NCCL; build/cuda/dist is a stripped copy to take along
	@test -n "$(NVCC)" || { echo "make cuda: no nvcc; install the CUDA toolkit 13.0 or put nvcc on PATH" >&2; exit 2; }
	@tools/setup.sh --cuda
	@test -f build/cuda/build.ninja || CUDACXX=$(NVCC) cmake --preset cuda
	@cmake --build build/cuda
	@python3 tools/make_dist.py build/cuda

gpu-test:  ## run the GPU tests of build/cuda; needs a GPU
	@tests/gpu/run.sh

clean:     ## remove build/; .deps/ stays
	@rm -rf build
