#include "planner/memory.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "planner/planner.h"
#include "run/model/family.h"
#include "run/model/lora.h"

namespace longhaul::coordinator {
namespace {

RunSpec Gpt2Small() {
  RunSpec spec;
  spec.model.layers = 12;
  spec.model.hidden = 768;
  spec.model.heads = 12;
  spec.model.context = 1024;
  spec.train.microbatches = 8;
  spec.links.codecs = {"none", "none"};
  return spec;
}

// As published: those with experts have a head of their own, the others one tied to the embedding.
TEST(StageParameters, PublishedTotals) {
  const std::map<std::string, uint64_t> published = {
      {"gpt2", 124'439'808},           {"gpt2-medium", 354'823'168},
      {"gpt2-xl", 1'557'611'200},      {"qwen2.5-0.5b", 494'032'768},
      {"qwen2.5-3b", 3'085'938'688},   {"qwen3-30b-a3b", 30'532'122'624},
      {"mixtral-8x7b", 46'702'792'704}};
  ASSERT_EQ(model::Presets().size(), published.size());
  for (const model::Preset& preset : model::Presets()) {
    ModelSpec model = preset.model;
    const uint64_t untied = StageParameters(model, 256, model.layers, true, true);
    model.tied = true;
    const uint64_t tied = StageParameters(model, 256, model.layers, true, true);
    EXPECT_EQ(model.experts > 0 ? untied : tied, published.at(preset.name)) << preset.name;
    EXPECT_EQ(untied, tied + uint64_t{model.VocabularyOver(256)} * model.hidden) << preset.name;
  }
}

TEST(StageParameters, DoNotDependOnTheSplit) {
  for (const model::Preset& preset : model::Presets()) {
    ModelSpec model = preset.model;
    const uint32_t layers = model.layers;
    const auto split = [&] {
      return StageParameters(model, 256, 5, true, false) +
             StageParameters(model, 256, 4, false, false) +
             StageParameters(model, 256, layers - 9, false, true);
    };
    EXPECT_EQ(split(), StageParameters(model, 256, layers, true, true)) << preset.name;
    // Both ends of a tied model hold the matrix.
    model.tied = true;
    EXPECT_EQ(split(), StageParameters(model, 256, layers, true, true) +
                           uint64_t{model.VocabularyOver(256)} * model.hidden)
        << preset.name;
  }
}

// What boundaries know of tokens is on both sides of each, in the snapshots of the side above, and
// twice on its way.
TEST(StageMemory, OfTablesOfTokens) {
  constexpr uint32_t kVocabulary = 50257;
  RunSpec none = Gpt2Small();
  none.links.codecs = {"none", "none"};
  none.checkpoint.every = 0;
  RunSpec predicts = none;
  predicts.links.codecs.forward = "predict:pairs=65536/gauss";
  const uint64_t tables = TableBytes(predicts, kVocabulary);
  constexpr uint64_t kRows = 50257 + 65536, kCounts = (kRows + 1) * 4;
  EXPECT_EQ(tables, 768 * 4 + (kCounts + 63) / 64 * 64 + kRows * 768 * 2);
  const uint64_t arrays = kRows * 768 * 2 + (kRows + 1 + 768) * 4;
  EXPECT_EQ(TableBytes(none, kVocabulary), 0u);
  const uint64_t tensors = uint64_t{2} * 1024 * 768 * 4;  // r and x' - A[t] of a boundary
  for (const bool on_gpu : {false, true}) {
    const auto more = [&](bool first, bool last) {
      const auto of = [&](const RunSpec& spec) {
        return MemoryOf(spec, kVocabulary, 3, first, last, on_gpu);
      };
      const StageMemory with = of(predicts), without = of(none);
      return std::pair(with.fixed - without.fixed, with.host - without.host);
    };
    const uint64_t in_host[] = {3 * arrays, 3 * arrays, 2 * arrays};
    const uint64_t boundaries[] = {1, 2, 1};
    for (int stage = 0; stage < 3; ++stage) {
      const auto [fixed, host] = more(stage == 0, stage == 2);
      const uint64_t own = boundaries[stage] * (tables + tensors);
      EXPECT_EQ(fixed, own + (on_gpu ? 0 : in_host[stage])) << "stage " << stage;
      EXPECT_EQ(host, on_gpu ? in_host[stage] : 0) << "stage " << stage;
    }
  }
  // An exception of one worker may be anywhere.
  none.links.by_worker.emplace_back("w1",
                                    LinkException{.codecs = {"predict:pairs=0/gauss", "none"}});
  EXPECT_EQ(TableBytes(none, kVocabulary),
            TableBytes(predicts, kVocabulary) - 65536 * (768 * 2 + 4));
}

// Before a plan has chosen: of what it may choose. Afterwards: of what it chose.
TEST(StageMemory, OfTablesOfTokensWhereThePlanChooses) {
  constexpr uint32_t kVocabulary = 50257;
  RunSpec open = Gpt2Small();
  RunSpec named = open;
  named.links.codecs = {"predict/gauss:bits=5", "none"};
  open.links.codecs = {"auto", "auto"};
  EXPECT_EQ(TableBytes(open, kVocabulary), TableBytes(named, kVocabulary));
  EXPECT_GT(TableBytes(open, kVocabulary), 0u);
  open.links.chosen = {{CodecPair{"none", "none"}, CodecPair{"bf16", "none"}}};
  EXPECT_EQ(TableBytes(open, kVocabulary), 0u);
  open.links.chosen[0][1] = named.links.codecs;
  EXPECT_EQ(TableBytes(open, kVocabulary), TableBytes(named, kVocabulary));
  open.links.chosen.clear();
  open.links.predicts = false;
  EXPECT_EQ(TableBytes(open, kVocabulary), 0u);
}

// A GPU's stage has its snapshots, each value and two moments, in the host's memory; and memory of
// its own for each microbatch, in which nothing of another's can be.
TEST(StageMemoryBytes, IsWithoutSnapshotsAndByMicrobatchesOnAGpu) {
  RunSpec spec = Gpt2Small();
  const auto bytes = [&](uint32_t depth, bool on_gpu) {
    return StageMemoryBytes(spec, 256, 3, true, false, depth, on_gpu);
  };
  const uint64_t boundary = 1024 * 768 * 4,
                 snapshots = 2 * 12 * StageParameters(spec.model, 256, 3, true, false);
  EXPECT_EQ(bytes(1, true) - bytes(1, false) + snapshots,
            (192u << 20) + 9 * boundary + (20u << 20));
  EXPECT_EQ(bytes(2, true) - bytes(1, true),
            bytes(2, false) - bytes(1, false) + boundary + (20u << 20));
  spec.pipeline.recompute = Recompute::kStage;
  EXPECT_EQ(bytes(2, true) - bytes(1, true), bytes(2, false) - bytes(1, false));
}

// What a GPU's host holds is what a CPU's stage holds besides: snapshots, and of a tied matrix what
// comes and goes.
TEST(StageMemory, OfAGpusHost) {
  RunSpec spec = Gpt2Small();
  spec.checkpoint.every = 0;
  const auto host = [&](bool first, bool last, bool on_gpu = true) {
    return MemoryOf(spec, 256, 3, first, last, on_gpu).host;
  };
  const auto state = [&](bool first, bool last) {
    return StageStateBytes(spec, 256, 3, first, last);
  };
  const uint64_t besides = uint64_t{4} * 1024 * 768 * 4 + (64u << 20) + kProgramBytes;
  EXPECT_EQ(host(true, false), state(true, false) + besides);
  EXPECT_EQ(host(true, false, /*on_gpu=*/false), 0u);
  spec.checkpoint.every = 50;
  EXPECT_EQ(host(true, false), 2 * state(true, false) + besides);
  EXPECT_EQ(host(false, true), 2 * state(false, true) + besides);
  spec.model.tied = true;
  const uint64_t pieces = 256 * 768 * 4 + (32u << 20);
  EXPECT_EQ(host(true, false), 2 * state(true, false) + besides + pieces);
  EXPECT_EQ(host(false, false), 2 * state(false, false) + besides);
  EXPECT_EQ(host(false, true), 2 * state(false, true) + besides + pieces);
}

// The next one is taken while one is being written.
TEST(StageMemoryBytes, HasASecondSnapshotWhereTheRunTakesThemAgain) {
  RunSpec spec = Gpt2Small();
  spec.checkpoint.every = 0;
  const uint64_t state = StageStateBytes(spec, 256, 3, true, false);
  const uint64_t once = StageMemoryBytes(spec, 256, 3, true, false, 1);
  spec.checkpoint.every = 50;
  EXPECT_EQ(StageMemoryBytes(spec, 256, 3, true, false, 1), once + state);
  spec.checkpoint.every = 0;
  spec.recovery.every = std::nullopt;  // auto
  EXPECT_EQ(StageMemoryBytes(spec, 256, 3, true, false, 1), once + state);
}

// A block of GPT-2's has matrices of 12 h^2 elements, and 13 h other numbers.
TEST(StageMemoryBytes, FollowsTheOptimizersMoments) {
  RunSpec adamw = Gpt2Small();
  RunSpec muon = adamw;
  muon.train.optimizer.kind = OptimizerKind::kMuon;
  const uint64_t h = 768, embedding = (256 + 1024) * h, blocks = 3 * (12 * h * h + 13 * h);
  const auto moments = [](const RunSpec& spec) { return StageMoments(spec, 256, 3, true, false); };
  EXPECT_EQ(moments(adamw), 2 * (embedding + blocks));
  EXPECT_EQ(moments(muon), 2 * (embedding + blocks) - 3 * 12 * h * h);
  EXPECT_EQ(StageStateBytes(adamw, 256, 3, true, false), 12 * (embedding + blocks));
  EXPECT_EQ(StageStateBytes(muon, 256, 3, true, false), 12 * (embedding + blocks) - 4 * 36 * h * h);

  const auto bytes = [](RunSpec spec, MomentDtype dtype, bool on_gpu) {
    spec.train.optimizer.moments = dtype;
    return StageMemoryBytes(spec, 256, 3, true, false, 1, on_gpu);
  };
  const auto saved = [&](const RunSpec& spec, bool on_gpu) {
    return bytes(spec, MomentDtype::kFp32, on_gpu) - bytes(spec, MomentDtype::kBf16, on_gpu);
  };
  EXPECT_EQ(saved(adamw, false), 2 * moments(adamw));
  EXPECT_EQ(saved(muon, false), 2 * moments(muon));
  EXPECT_EQ(saved(adamw, true), 2 * moments(adamw) - (64u << 20));
  // The MLP's matrices and the stacked queries, keys and values need the most in passing.
  EXPECT_EQ(bytes(adamw, MomentDtype::kFp32, true) - bytes(muon, MomentDtype::kFp32, true),
            4 * 36 * h * h - (16 * 4 + 8) * h * h);
}

// Adapters of rank r: r (inputs + outputs) numbers each. What is frozen is held in bf16 but for the
// two norms of a block, and needs neither gradient nor moments nor a place in a snapshot.
TEST(StageMemoryBytes, WithLoraIsThatOfAdaptersAndFrozenWeights) {
  RunSpec full;
  for (const model::Preset& preset : model::Presets()) {
    if (preset.name == "qwen2.5-0.5b") full.model = preset.model;
  }
  full.model.context = 512;
  full.train.microbatches = 8;
  full.train.dtype = ComputeDtype::kBf16;
  RunSpec lora = full;
  lora.model.lora = LoraSpec{.rank = 8, .alpha = 16, .targets = {"q_proj", "v_proj"}};
  const uint64_t adapters = 3 * 8 * ((896 + 896) + (896 + 128)), norms = 3 * 2 * 896;
  const uint64_t all = StageParameters(full.model, 256, 3, false, false);
  EXPECT_EQ(StageParameters(lora.model, 256, 3, false, false), adapters);
  EXPECT_EQ(StageParameters(lora.model, 256, 3, true, true), adapters);
  EXPECT_EQ(StageStateBytes(lora, 256, 3, true, true), 12 * adapters);
  EXPECT_EQ(MemoryOf(full, 256, 3, false, false).fixed - MemoryOf(lora, 256, 3, false, false).fixed,
            (8 + 8 + 24 + 2) * (all - adapters) - 2 * (all - norms) - 4 * norms);
  // For each block and token autograd keeps the numbers of both adapters; and no longer what goes
  // into the products with weights of norms, in fp32.
  EXPECT_EQ(MemoryOf(lora, 256, 3, false, false).per_flight + 3 * 512 * (2 * 896 * 4) -
                MemoryOf(full, 256, 3, false, false).per_flight,
            3 * 512 * (8 + 8) * 2);
  // Dropout keeps nothing, and needs copies of the widest input in passing.
  RunSpec dropping = lora;
  dropping.model.lora->dropout = 0.1;
  const auto more = [&](bool on_gpu, uint64_t StageMemory::*part) {
    return MemoryOf(dropping, 256, 3, false, false, on_gpu).*part -
           MemoryOf(lora, 256, 3, false, false, on_gpu).*part;
  };
  EXPECT_EQ(more(false, &StageMemory::fixed), 2 * 512 * 896 * 2 + 9 * (uint64_t{1} << 16));
  EXPECT_EQ(more(false, &StageMemory::per_flight), 0u);
  EXPECT_EQ(more(true, &StageMemory::fixed), 2 * 512 * 896 * 2 + 9 * (uint64_t{4} << 20));
  EXPECT_EQ(more(true, &StageMemory::per_flight), 512 * 896 * 2 + 9 * (uint64_t{4} << 20));
  // Ranks divide B with the rows of its matrix; each has all of A.
  RunSpec shared = lora;
  shared.group.tensor = 2;
  EXPECT_EQ(RankParameters(shared, 256, 3, false, false), 3u * 8 * ((896 + 448) + (896 + 64)));
  EXPECT_LT(MemoryOf(shared, 256, 3, false, false, true).fixed,
            MemoryOf(lora, 256, 3, false, false, true).fixed);
  // Both ends of a tied model hold the matrix.
  full.model.tied = lora.model.tied = true;
  RunSpec untied = lora;
  untied.model.tied = false;
  const auto fixed = [](const RunSpec& spec, bool first, bool last) {
    return MemoryOf(spec, 256, 3, first, last).fixed;
  };
  EXPECT_EQ(fixed(lora, true, false), fixed(untied, true, false));
  EXPECT_EQ(fixed(lora, false, true), fixed(untied, false, true));
  EXPECT_EQ(fixed(untied, true, true) - fixed(lora, true, true), 2 * uint64_t{151936} * 896);
}

// A Llama of 7B parameters with adapters at all matrices.
RunSpec Llama7b(QuantizeBase quantize) {
  RunSpec spec;
  spec.model.family = ModelFamily::kLlama;
  spec.model.layers = 32;
  spec.model.hidden = 4096;
  spec.model.heads = spec.model.kv_heads = 32;
  spec.model.intermediate = 11008;
  spec.model.vocabulary = 32000;
  spec.model.context = 1024;
  spec.train.dtype = ComputeDtype::kBf16;
  spec.train.microbatches = 8;
  spec.train.microbatch_size = 1;
  spec.model.lora =
      LoraSpec{.rank = 16, .alpha = 32, .quantize_base = quantize, .targets = {"q_proj"}};
  spec.model.lora->targets = model::TargetsOf(spec.model);
  return spec;
}

TEST(StageMemoryBytes, OfAQuantizedBaseIsThatOfItsStoredForm) {
  const auto fixed = [](QuantizeBase quantize, uint32_t layers, bool first, bool last) {
    return MemoryOf(Llama7b(quantize), 32000, layers, first, last, /*on_gpu=*/true).fixed;
  };
  constexpr uint64_t kMatrices = 4 * 4096 * 4096 + uint64_t{3} * 4096 * 11008;
  constexpr uint64_t kLargest = 4096 * 11008;
  const auto saved = [&](QuantizeBase quantize) {
    return static_cast<double>(fixed(QuantizeBase::kNone, 11, false, false)) -
           static_cast<double>(fixed(quantize, 11, false, false));
  };
  // 4 bits, an absmax of 8 bits for each 64 elements, one of 32 bits for each 256 of these.
  constexpr double kNf4 = 0.5 + 1.0 / 64 + 4.0 / (64 * 256);
  EXPECT_NEAR(saved(QuantizeBase::kNf4), 11 * (2 - kNf4) * kMatrices - 2 * kLargest, 1e5);
  EXPECT_NEAR(saved(QuantizeBase::kInt8), 11 * 1.0 * kMatrices - 2 * kLargest, 1e7);
  // No block, no matrix.
  EXPECT_EQ(fixed(QuantizeBase::kNf4, 0, true, false), fixed(QuantizeBase::kNone, 0, true, false));
  // Ranks divide a matrix, and need less memory to dequantize it.
  RunSpec shared = Llama7b(QuantizeBase::kNf4);
  shared.group.tensor = 2;
  EXPECT_LT(MemoryOf(shared, 32000, 11, false, false, true).fixed,
            fixed(QuantizeBase::kNf4, 11, false, false) - uint64_t(0.25 * 11 * kMatrices));
}

TEST(StageMemoryBytes, SevenBillionParametersFitThreeCardsOf24Gb) {
  constexpr uint64_t kCard = 24'000'000'000;
  const RunSpec spec = Llama7b(QuantizeBase::kNf4), plain = Llama7b(QuantizeBase::kNone);
  RunSpec all = plain;
  all.model.lora.reset();
  const auto parameters = static_cast<double>(StageParameters(all.model, 32000, 32, true, true));
  EXPECT_GT(parameters, 6.7e9);
  const auto fixed = [](const RunSpec& of) {
    return static_cast<double>(MemoryOf(of, 32000, 32, true, true, /*on_gpu=*/true).fixed);
  };
  // Embedding and head, in bf16, too; and what the largest matrix is dequantized into.
  const double base = fixed(spec) - fixed(plain) + 2 * parameters;
  EXPECT_LE(base, 0.6 * parameters);
  const uint32_t layers[] = {11, 11, 10};
  for (uint32_t stage = 0; stage < 3; ++stage) {
    for (const uint32_t in_flight : {3u, 6u}) {
      EXPECT_LT(StageMemoryBytes(spec, 32000, layers[stage], stage == 0, stage == 2, in_flight,
                                 /*on_gpu=*/true),
                kCard)
          << stage << " " << in_flight;
    }
  }
}

TEST(StageMemoryBytes, GrowsWithDepthLayersAndBatch) {
  RunSpec spec = Gpt2Small();
  const uint64_t one = StageMemoryBytes(spec, 256, 3, false, false, 1);
  const uint64_t two = StageMemoryBytes(spec, 256, 3, false, false, 2);
  // A microbatch in flight: 16 values a token and block, and the stage's input and output.
  EXPECT_EQ(two - one, 1024u * 768u * 4u * (3u * 16u + 2u));
  EXPECT_GT(StageMemoryBytes(spec, 256, 4, false, false, 1), one);
  EXPECT_GT(StageMemoryBytes(spec, 50257, 3, false, true, 1), one);
  spec.train.dtype = ComputeDtype::kBf16;
  EXPECT_LT(StageMemoryBytes(spec, 256, 3, false, false, 8),
            StageMemoryBytes(Gpt2Small(), 256, 3, false, false, 8));
}

TEST(StageMemoryBytes, LlamaKeepsItsOwnValues) {
  RunSpec spec;
  for (const model::Preset& preset : model::Presets()) {
    if (preset.name == "qwen2.5-3b") spec.model = preset.model;
  }
  spec.model.context = 512;
  spec.train.microbatches = 8;
  const uint64_t h = 2048, keys = 256, intermediate = 11008;
  const auto per_flight = [&] {
    return StageMemoryBytes(spec, 256, 3, false, false, 2) -
           StageMemoryBytes(spec, 256, 3, false, false, 1);
  };
  EXPECT_EQ(per_flight(), 512 * 4 * (3 * (8 * h + 2 * keys + 4 * intermediate) + 2 * h));
  spec.train.dtype = ComputeDtype::kBf16;
  EXPECT_EQ(per_flight(),
            512 * (3 * (4 * 4 * h + 2 * (4 * h + 2 * keys + 4 * intermediate)) + 4 * 2 * h));
}

TEST(StageMemoryBytes, RecomputationKeepsInputsOnly) {
  RunSpec spec = Gpt2Small();
  spec.pipeline.recompute = Recompute::kStage;
  const uint64_t one = StageMemoryBytes(spec, 256, 3, false, false, 1);
  EXPECT_EQ(StageMemoryBytes(spec, 256, 3, false, false, 2) - one, 2u * 1024u * 768u * 4u);
}

// A block of GPT-2's keeps 16 values a token.
TEST(StageMemoryBytes, RecomputationByBlocksHasOneBlockAtATime) {
  RunSpec stage = Gpt2Small(), blocks = stage;
  stage.pipeline.recompute = Recompute::kStage;
  blocks.pipeline.recompute = Recompute::kBlocks;
  const uint64_t boundary = 1024u * 768u * 4u;
  const auto memory = [](const RunSpec& spec, uint32_t layers, bool on_gpu) {
    return MemoryOf(spec, 256, layers, false, false, on_gpu);
  };
  for (const bool on_gpu : {false, true}) {
    EXPECT_EQ(memory(blocks, 3, on_gpu).per_flight, 4 * boundary);
    EXPECT_EQ(memory(stage, 3, on_gpu).fixed - memory(blocks, 3, on_gpu).fixed, 2 * 16 * boundary);
    EXPECT_EQ(memory(blocks, 1, on_gpu).At(4), memory(stage, 1, on_gpu).At(4));
  }
}

// GPT-2's 50,257 logits of 1024 tokens would be 196 MiB.
TEST(StageMemoryBytes, ALargeVocabularysLogitsAreInChunks) {
  RunSpec spec = Gpt2Small();
  const StageMemory middle = MemoryOf(spec, 50257, 3, false, false);
  const StageMemory last = MemoryOf(spec, 50257, 3, false, true);
  EXPECT_EQ(last.per_flight, middle.per_flight);
  const uint64_t parameters = StageParameters(spec.model, 50257, 3, false, true) -
                              StageParameters(spec.model, 50257, 3, false, false);
  // Value, gradient, moments and two snapshots; of 256 tokens three times the logits, and what the
  // norm keeps.
  EXPECT_EQ(last.fixed - middle.fixed,
            (16 + 24) * parameters + 3 * 256 * 50257 * 4 + 256 * uint64_t{768} * 4 * 2);
  // Where they are one chunk autograd keeps a microbatch's log-softmax.
  const uint64_t small = MemoryOf(spec, 16384, 3, false, true).per_flight;
  EXPECT_GT(small - middle.per_flight, 1024u * 16384u * 4u);
}

// What ranks hold adds up to the whole, and to the norms and biases again that each has.
TEST(RankParameters, AreAShare) {
  RunSpec spec = Gpt2Small();
  const uint64_t whole = StageParameters(spec.model, 50257, 3, true, true);
  spec.group.tensor = 4;
  const uint64_t rank = RankParameters(spec, 50257, 3, true, true);
  const uint64_t repeated = spec.model.context * 768 + 3 * 6 * 768 + 2 * 768;
  // 50,257 = 4 x 12,564 + 1: the largest share has a row more of embedding and head.
  EXPECT_EQ(rank, (whole - repeated - 2 * 768) / 4 + 2 * 768 + repeated);
  spec.group.tensor = 1;
  EXPECT_EQ(RankParameters(spec, 50257, 3, true, true), whole);
}

TEST(MemoryOf, ARanksNormsAndBoundariesAreWhole) {
  RunSpec spec = Gpt2Small();
  const StageMemory one = MemoryOf(spec, 256, 3, false, false, /*on_gpu=*/true);
  spec.group.tensor = 4;
  const StageMemory rank = MemoryOf(spec, 256, 3, false, false, /*on_gpu=*/true);
  const uint64_t tokens = 1024, hidden = 768;
  // In a block 12 of 16 hidden states lie between split matrices.
  EXPECT_EQ(one.per_flight - rank.per_flight, 3 * tokens * 12 * hidden * 4 * 3 / 4);
  const uint64_t parameters = StageParameters(spec.model, 256, 3, false, false) -
                              RankParameters(spec, 256, 3, false, false);
  EXPECT_EQ(one.fixed - rank.fixed, 16 * parameters);
  // Snapshots are of the whole stage and made of what each rank copies, through a buffer of its
  // own.
  EXPECT_EQ(rank.host - one.host,
            StageStateBytes(spec, 256, 3, false, false) + 3 * (uint64_t{64} << 20));
}

// A step that is skipped gives back what it took from the rest that earlier steps did not send.
TEST(MemoryOf, ReplicasThatMaySkipAStepKeepTheirRestTwice) {
  RunSpec spec = Gpt2Small();
  spec.replicas.count = 2;
  const uint64_t parameters = StageParameters(spec.model, 256, 3, false, false);
  const auto more_with_skip = [&](const char* gradients) {
    spec.replicas.gradients = replicas::ParseGradients(gradients).value();
    spec.train.on_nonfinite = OnNonfinite::kStop;
    const uint64_t stops = MemoryOf(spec, 256, 3, false, false).fixed;
    spec.train.on_nonfinite = OnNonfinite::kSkip;
    return MemoryOf(spec, 256, 3, false, false).fixed - stops;
  };
  EXPECT_EQ(more_with_skip("tagc"), 4 * parameters);
  EXPECT_EQ(more_with_skip("sdp4bit:feedback=on"), 4 * parameters);
  for (const char* without : {"bf16", "sdp4bit", "local-sgd"}) {
    EXPECT_EQ(more_with_skip(without), 0u) << without;
  }
}

TEST(MemoryOf, RanksThatShareTokensHaveAPartOfTheSums) {
  RunSpec spec = Gpt2Small();
  spec.group.tensor = 4;
  const uint64_t whole = MemoryOf(spec, 256, 3, false, false).per_flight;
  spec.group.sequence = true;
  const uint64_t part = MemoryOf(spec, 256, 3, false, false).per_flight;
  EXPECT_EQ(whole - part, 3 * 1024 * 2 * 768 * 4 * 3 / 4);
}

TEST(MemoryOf, RanksWithChannelsOfTheirOwnHaveLargerBoundaries) {
  RunSpec spec = Gpt2Small();
  spec.group.tensor = 4;
  const uint64_t alike = MemoryOf(spec, 256, 3, false, false).per_flight;
  spec.group.shared_channels = 0.5;
  const uint64_t own = MemoryOf(spec, 256, 3, false, false).per_flight;
  // 384 channels three times more, of the input and of the output.
  EXPECT_EQ(own - alike, 2 * 1024 * 3 * 384 * 4);
}

TEST(MemoryOf, RanksOnACpuShareSnapshotsAndTheProgram) {
  RunSpec spec = Gpt2Small();
  const StageMemory one = MemoryOf(spec, 256, 3, false, false);
  spec.group.tensor = 4;
  const StageMemory rank = MemoryOf(spec, 256, 3, false, false);
  const uint64_t parameters = StageParameters(spec.model, 256, 3, false, false) -
                              RankParameters(spec, 256, 3, false, false);
  const uint64_t state = StageStateBytes(spec, 256, 3, false, false);
  EXPECT_EQ(one.fixed - rank.fixed,
            16 * parameters + kProgramBytes * 3 / 4 + 2 * state - 3 * state / 4);
}

TEST(MemoryOf, ARankHasItsPartOfTheLogits) {
  RunSpec spec = Gpt2Small();
  const uint64_t one = MemoryOf(spec, 4096, 1, false, true).per_flight;
  spec.group.tensor = 4;
  const uint64_t rank = MemoryOf(spec, 4096, 1, false, true).per_flight;
  const uint64_t tokens = 1024;
  EXPECT_EQ(one - rank, tokens * 12 * 768 * 4 * 3 / 4 + tokens * 4096 * 4 * 3 / 4);
}

}  // namespace
}  // namespace longhaul::coordinator
