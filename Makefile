# make demo   what attends to what in a trained model
# make test   every test
# The rest: make help

BUILD := build/release
ASAN := build/asan
# Only configured: clang-tidy reads the commands. It has no omp.h.
TIDY := build/tidy
OUT := out
MODEL := models/phonemes
WORD := thought
# Python with the peers for bench-peers and bench-training-peers; made under build/ unless given.
PYTHON := build/peers/bin/python
# Through the environment, so that no quote in it meets the shell.
export WORD
CONFIGURE := cmake -G Ninja -DCMAKE_BUILD_TYPE=Release

.PHONY: demo test test-asan tidy packages cli bench bench-peers bench-training-peers bench-variants-peers variants cost-experiments \
        cost cost-scaling cost-published cost-recall data train eval train-glyphs eval-glyphs glyph-fonts \
        pictures curves format install clean help

help:
	@sed -n 's/^#: //p' $(MAKEFILE_LIST)

packages:
	@scripts/install_packages.sh

#: make demo        install what is missing, build, and look into the shipped model (WORD=... picks the word; pictures go to
#:                  out/WORD.svg and .png, with _ for a slash or space)
demo: cli
	@mkdir -p $(OUT)
	@$(BUILD)/regard view -- "$$WORD"
	@picture=$(OUT)/$$(printf %s "$$WORD" | tr '/ ' '__') && for format in svg png; do \
	  $(BUILD)/regard view --kind cross --layer 2 --format $$format -o "$$picture.$$format" -- "$$WORD" || exit 1; \
	done

cli: packages
	@mkdir -p build
	@$(CONFIGURE) -S . -B $(BUILD) > build/configure.log || { cat build/configure.log; exit 1; }
	@cmake --build $(BUILD) --target regard_cli

#: make test        build and run every test
test: packages
	$(CONFIGURE) -S . -B $(BUILD) -DREGARD_WERROR=ON
	cmake --build $(BUILD)
	ctest --test-dir $(BUILD) --output-on-failure -j 2

#: make test-asan   the unit tests under the address, leak and undefined-behaviour sanitizers
test-asan: packages
	$(CONFIGURE) -S . -B $(ASAN) -DREGARD_SANITIZE=address,undefined
	cmake --build $(ASAN) --target unit_tests
	ctest --test-dir $(ASAN) --output-on-failure -j 2 -L unit

#: make bench       every case of the operator against this machine's own peak and bandwidth, one thread, then two
bench: cli
	OMP_NUM_THREADS=1 $(BUILD)/regard bench --threads 1
	$(BUILD)/regard bench --threads 2

#: make bench-training-peers   training steps in turn with PyTorch, one thread each (PYTHON=... with torch)
bench-training-peers: packages $(filter build/peers/%,$(PYTHON))
	$(CONFIGURE) -S . -B $(BUILD)
	cmake --build $(BUILD) --target training_speed
	$(PYTHON) bench/peers/training.py compare $(BUILD)/bench/training_speed

#: make bench-peers the operator in turn with PyTorch, ONNX Runtime and OpenVINO, one thread each, as the table of the README
bench-peers: cli $(filter build/peers/%,$(PYTHON))
	OMP_NUM_THREADS=1 $(PYTHON) bench/peers/attention.py $(BUILD)/regard

#: make bench-variants-peers   window, Performer, Linformer and Reformer in turn with public Python packages, one thread each
bench-variants-peers: variants $(if $(filter build/peers/%,$(PYTHON)),build/peers/variants)
	$(PYTHON) bench/peers/variants.py $(BUILD)/bench/variants

variants: packages
	$(CONFIGURE) -S . -B $(BUILD)
	cmake --build $(BUILD) --target variants

# Without what they depend on beyond PyTorch: a CUDA extension that one of them can do without needs a compiler for it.
build/peers/variants: build/peers/bin/python
	build/peers/bin/pip install --no-deps local-attention==1.11.2 performer-pytorch==1.1.4 linformer==0.2.3 \
	  reformer-pytorch==1.4.4 einops==0.8.2 axial-positional-embedding==0.3.12 product-key-memory==0.3.0 \
	  hyper-connections==0.4.11 colt5-attention==0.11.2
	touch $@

build/peers/bin/python:
	python3 -m venv build/peers
	build/peers/bin/pip install torch==2.14.1 onnxruntime==1.32.0 onnx==1.23.2 openvino==2026.4.1

#: make data        the pronouncing dictionary, split for training
data:
	@python3 -m pip --version > /dev/null 2>&1 || scripts/install_packages.sh python3-pip
	scripts/prepare_cmudict.py --out data/cmudict

#: make train       train the shipped model again (hours)
train: cli
	@test -s data/cmudict/train.tsv || $(MAKE) data
	$(BUILD)/regard train --train data/cmudict/train.tsv --dev data/cmudict/dev.tsv --out $(OUT)/phonemes --dtype f16

#: make eval        error rates of the shipped model on the whole test split, greedy and beam 5
eval: cli
	@test -s data/cmudict/test.tsv || $(MAKE) data
	$(BUILD)/regard eval --model $(MODEL) --data data/cmudict/test.tsv
	$(BUILD)/regard eval --model $(MODEL) --data data/cmudict/test.tsv --beam 5

#: make train-glyphs   train the shipped model of pictures again (an hour); installs the fonts it sees
train-glyphs: cli glyph-fonts
	OMP_NUM_THREADS=1 $(BUILD)/regard train --strings models/glyphs/seen-fonts.json --out $(OUT)/glyphs --name glyphs \
	  --threads 1 --layers 3 --hidden 192 --batch 64 --epochs 18 --rate 1e-3 --warmup 500 --dropout 0.05 --smoothing 0.05 \
	  --max-length 96 --dtype f16

#: make eval-glyphs    its error rates on unseen strings in fonts of its training and in others, and where it looks
eval-glyphs: cli glyph-fonts
	$(BUILD)/regard eval --model models/glyphs --strings models/glyphs/seen-fonts.json --places
	$(BUILD)/regard eval --model models/glyphs --strings models/glyphs/unseen-fonts.json --places

glyph-fonts:
	@scripts/install_packages.sh fonts-dejavu-extra fonts-liberation2 fonts-freefont-ttf fonts-roboto-unhinted \
	  fonts-roboto-slab fonts-open-sans fonts-lato fonts-firacode fonts-jetbrains-mono fonts-linuxlibertine \
	  fonts-sil-gentium-basic fonts-oldstandard fonts-gfs-didot fonts-urw-base35 fonts-courier-prime fonts-cantarell \
	  fonts-cabin fonts-play fonts-paratype fonts-inconsolata fonts-crosextra-caladea

#: make pictures    draw the committed pictures again
pictures: cli
	scripts/draw_pictures.sh $(BUILD)/regard

#: make curves      measure the curves of docs/curves again, one thread (minutes), and draw them
curves: variants
	scripts/measure_curves.sh $(BUILD)/bench/variants

#: make cost        measure what layers cost at 64 to 8192 tokens, one thread (minutes): docs/cost/cost.txt and .svg
cost: cli
	OMP_NUM_THREADS=1 $(BUILD)/regard cost --n 64,128,256,512,1024,2048,4096,8192 --measure --threads 1 --seconds 0.2 --width 200 \
	  -o docs/cost/cost.svg > docs/cost/cost.txt

#: make cost-scaling, cost-published, cost-recall   measure the tables of docs/cost again, one thread: scores and clipping
#:                  (a minute), Base and Large (two minutes), attention and an LSTM over distance (a quarter of an hour)
cost-scaling cost-published cost-recall: cost-%: cost-experiments
	OMP_NUM_THREADS=1 REGARD_THREADS=1 $(BUILD)/bench/cost_experiments $* docs/cost

cost-experiments: packages
	$(CONFIGURE) -S . -B $(BUILD)
	cmake --build $(BUILD) --target cost_experiments

#: make tidy        clang-tidy over library and command line (FILES=src/core/tensor.cpp ... picks; ten seconds each)
tidy: packages
	@scripts/install_packages.sh clang-tidy
	$(CONFIGURE) -S . -B $(TIDY) -DREGARD_STD_THREADS=ON
	printf '%s\n' $(or $(FILES),$(shell git ls-files 'src/*.cpp' 'cli/*.cpp')) | xargs -n 1 -P 2 clang-tidy --quiet -p $(TIDY)

#: make format      the one formatter
format:
	@scripts/install_packages.sh clang-format
	git ls-files '*.cpp' '*.h' | xargs clang-format -i

#: make install     library, headers, command line and model (PREFIX=/usr/local)
install: cli
	cmake --build $(BUILD)
	cmake --install $(BUILD) --prefix $(or $(PREFIX),/usr/local)

#: make clean       remove what was built
clean:
	rm -rf build $(OUT)
