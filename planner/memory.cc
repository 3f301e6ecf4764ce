#include "planner/memory.h"

#include <algorithm>
#include <string>

#include "codec/predict/tables.h"
#include "codec/quantized/format.h"
#include "planner/attention_memory.h"
#include "planner/planner.h"
#include "run/boundary/boundary_shape.h"
#include "run/boundary/open_codecs.h"
#include "run/model/family.h"
#include "run/model/loss_chunks.h"
#include "run/model/share.h"
#include "transport/replicas/layout.h"

namespace longhaul::coordinator {
namespace {

constexpr uint64_t kFloat = 4, kHalf = 2;
constexpr uint64_t kRoundingBytes = uint64_t{64} << 20;
constexpr uint64_t kTensorsOfTables = 2;
// One on its way to a snapshot; or from a checkpoint, whose files hold those of both boundaries.
constexpr uint64_t kTablesOnTheirWay = 2;
constexpr uint64_t kTiedPieces = uint64_t{32} << 20;
constexpr uint64_t kLogitsAtWork = 2;
// Pinned buffers of snapshots in the memory of a GPU's host (worker/stage/device/host_copies.h).
constexpr uint64_t kPinnedBytes = uint64_t{64} << 20;
// For a stage on a GPU, whose passes are recorded as CUDA graphs.
constexpr uint64_t kCublasBytes = uint64_t{192} << 20;
constexpr uint64_t kBoundariesInPassing = 8;
constexpr uint64_t kSegmentBytes = uint64_t{20} << 20;
// Numbers of an MLP's width that autograd keeps for a token: gate, up, and their product.
constexpr uint64_t kKeptByMlp = 3;

model::Ranks RanksOf(const GroupSpec& group) {
  return {.count = group.tensor, .experts = group.expert, .share_tokens = group.sequence};
}

// The part of a parameter that the last of `ranks` holds. The last rank has the most rows of a
// vocabulary; of everything else all ranks have equally much.
model::Shape ShareOfLast(const ModelSpec& spec, const model::Parameter& parameter,
                         const model::Ranks& ranks) {
  model::Shape shape = parameter.shape;
  if (ranks.count == 1) return shape;
  const StatusOr<model::Share> share = model::ShareOf(spec, parameter, ranks.count - 1, ranks);
  if (!share.ok()) return shape;  // the run file's check refuses such a group
  uint32_t extent = 0;
  for (const model::Range& range : share->ranges) extent += range.end - range.begin;
  (parameter.split.along == model::Along::kColumns ? shape.columns : shape.rows) = extent;
  return shape;
}

uint64_t ElementsOf(const ModelSpec& spec, const model::Parameter& parameter,
                    const model::Ranks& ranks) {
  return ShareOfLast(spec, parameter, ranks).elements();
}

uint64_t PartOf(uint64_t bytes, uint32_t ranks) {
  return (bytes + ranks - 1) / ranks;
}

uint64_t BytesOf(const model::Kept& kept, const RunSpec& spec, bool on_gpu) {
  const bool bf16 = spec.train.dtype == ComputeDtype::kBf16;
  const uint64_t before_weights = on_gpu || spec.model.lora ? 0 : kept.before_weights;
  return (kept.full + before_weights) * kFloat + kept.half * (bf16 ? kHalf : kFloat);
}

// Sums `of_one` over the parameters of a stage.
template <class OfOne>
uint64_t SumOverParameters(const ModelSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                           bool last, const OfOne& of_one) {
  uint64_t sum = 0;
  for (const model::Parameter& parameter :
       model::ParametersOf(spec, spec.VocabularyOver(vocabulary), first, last)) {
    const uint64_t times = parameter.role == model::Role::kBlock ? layers : 1;
    sum += times * of_one(parameter);
  }
  return sum;
}

uint64_t TrainedBy(const ModelSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                   bool last, const model::Ranks& ranks) {
  return SumOverParameters(spec, vocabulary, layers, first, last,
                           [&](const model::Parameter& parameter) {
                             return parameter.frozen ? 0 : ElementsOf(spec, parameter, ranks);
                           });
}

uint64_t MomentsOf(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first, bool last,
                   const model::Ranks& ranks) {
  const bool muon = spec.train.optimizer.kind == OptimizerKind::kMuon;
  return SumOverParameters(spec.model, vocabulary, layers, first, last,
                           [&](const model::Parameter& parameter) {
                             const uint64_t moments = muon && parameter.is_block_matrix() ? 1 : 2;
                             const bool none = parameter.frozen || parameter.balances;
                             return none ? 0 : moments * ElementsOf(spec.model, parameter, ranks);
                           });
}

// Parameters that are cast: those of matrix products. The norms among them hardly count.
uint64_t CastParameters(ModelSpec spec, uint32_t vocabulary, uint32_t layers, bool last,
                        const model::Ranks& ranks) {
  spec.tied = false;  // the head is cast, whosever its values are
  return TrainedBy(spec, vocabulary, layers, /*first=*/false, last, ranks);
}

// Bytes of a frozen parameter's part `shape`, as a stage stores it.
uint64_t StoredBytes(const model::Parameter& parameter, const model::Shape& shape, bool bf16) {
  if (shape.elements() == 0) return 0;
  switch (parameter.quantized) {
    case QuantizeBase::kNf4:
      return codec::quantized::Nf4Layout(shape.elements()).bytes;
    case QuantizeBase::kInt8:
      return codec::quantized::Int8Layout(shape.rows, shape.columns).bytes;
    case QuantizeBase::kNone:
      break;
  }
  return shape.elements() * (parameter.is_frozen_in_compute_type() && bf16 ? kHalf : kFloat);
}

// Bytes of parameters that are not trained, and of the memory into which the largest quantized
// matrix is dequantized.
uint64_t FrozenBytes(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                     bool last) {
  const bool bf16 = spec.train.dtype == ComputeDtype::kBf16;
  uint64_t largest = 0;  // elements
  const uint64_t stored = SumOverParameters(
      spec.model, vocabulary, layers, first, last, [&](const model::Parameter& parameter) {
        if (!parameter.frozen) return uint64_t{0};
        const model::Shape share = ShareOfLast(spec.model, parameter, RanksOf(spec.group));
        if (parameter.is_quantized() && layers > 0) largest = std::max(largest, share.elements());
        return StoredBytes(parameter, share, bf16);
      });
  return stored + largest * (bf16 ? kHalf : kFloat);
}

// What a block's adapters keep of a token on each rank of a group: a number for each of the
// adapters' ranks. Those of an expert keep this of the expert's tokens alone, which are divided
// among the group's ranks.
uint64_t RanksOfBlock(const ModelSpec& spec, const model::Ranks& ranks) {
  if (!spec.lora) return 0;
  uint64_t of_all = 0, of_experts = 0;
  for (const model::Parameter& parameter :
       model::ParametersOf(spec, /*vocabulary_rows=*/1, /*embedding=*/false, /*head=*/false)) {
    if (!parameter.adapter) continue;
    const bool of_expert = parameter.split.along == model::Along::kExperts;
    (of_expert ? of_experts : of_all) += spec.lora->rank;
  }
  if (of_experts > 0) of_all += of_experts * spec.experts_per_token / spec.experts / ranks.count;
  return of_all / 2;  // A and B
}

// Bytes that dropout needs in passing: copies of the widest input of an adapter without what is
// dropped, and integers for a piece of its mask (worker/stage/model/dropout.cc). `copies`: backward
// has two, of the input and of its gradient.
uint64_t DropoutBytes(const RunSpec& spec, uint64_t copies, bool on_gpu) {
  if (!spec.model.lora || spec.model.lora->dropout == 0) return 0;
  constexpr uint64_t kPieceOnCpu = uint64_t{1} << 16, kPieceOnGpu = uint64_t{1} << 22;
  constexpr uint64_t kBytesOfMask = 2 * 4 + 1;  // two tensors of int32 and one of bool
  uint64_t widest = 0;
  for (const model::Parameter& parameter :
       model::ParametersOf(spec.model, /*vocabulary_rows=*/1, /*embedding=*/false,
                           /*head=*/false)) {
    if (!parameter.adapter || parameter.shape.rows != spec.model.lora->rank) continue;
    const bool is_part = parameter.split.along == model::Along::kColumns;
    widest =
        std::max<uint64_t>(widest, parameter.shape.columns / (is_part ? spec.group.tensor : 1));
  }
  const uint64_t tokens =
      uint64_t{spec.train.microbatch_size} * spec.model.context / spec.pipeline.SlicesNow();
  return copies * tokens * widest * (spec.train.dtype == ComputeDtype::kBf16 ? kHalf : kFloat) +
         kBytesOfMask * (on_gpu ? kPieceOnGpu : kPieceOnCpu);
}

// One is being written, or kept for an epoch that begins from it, while the next one is taken
// (worker/pipeline/checkpoint_writer.h). That one is put together of what the ranks of a group have
// copied.
uint64_t SnapshotsAtATime(const RunSpec& spec) {
  const bool again = spec.checkpoint.every > 0 || spec.recovery.every != 0u;
  return (again ? 2 : 1) + (spec.group.tensor > 1 ? 1 : 0);
}

// What Muon needs in passing. Ranks put the matrices of which they hold parts together, one each:
// what they send, what they get, and the whole.
uint64_t MuonBytes(const RunSpec& spec, uint32_t vocabulary, uint32_t layers) {
  if (spec.train.optimizer.kind != OptimizerKind::kMuon || layers == 0) return 0;
  uint64_t most = 0;
  for (const model::Parameter& parameter :
       model::ParametersOf(spec.model, vocabulary, /*embedding=*/false, /*head=*/false)) {
    if (!parameter.is_block_matrix() || parameter.frozen) continue;
    const uint64_t stacked = parameter.split.stacked;
    const uint64_t side =
        std::min<uint64_t>(parameter.shape.rows / stacked, parameter.shape.columns);
    const bool in_parts =
        spec.group.tensor > 1 && (parameter.split.along == model::Along::kRows ||
                                  parameter.split.along == model::Along::kColumns);
    const uint64_t copies = in_parts ? 7 : 4;
    most = std::max(
        most, copies * kFloat * parameter.shape.elements() + 2 * kFloat * stacked * side * side);
  }
  return most;
}

// What a GPU needs on which an exchange with replicas is coded: the numbers of a bucket, which has
// whole matrices where the optimizer wants these, a few times over, and what others sent of them.
uint64_t CodingBytes(const RunSpec& spec, uint32_t vocabulary) {
  constexpr uint64_t kNumbersAtWork = 6;
  uint64_t bucket = replicas::LayoutOptions().bucket_elements;
  if (spec.train.optimizer.kind == OptimizerKind::kMuon) {
    for (const model::Parameter& parameter :
         model::ParametersOf(spec.model, vocabulary, /*embedding=*/false, /*head=*/false)) {
      if (parameter.is_block_matrix()) bucket = std::max(bucket, parameter.shape.elements());
    }
  }
  return kFloat * bucket * std::max<uint64_t>(kNumbersAtWork, spec.replicas.count + 2);
}

// Memory for the exchange of a tied matrix: the gradient that the other stage sends, and pieces of
// the own gradient under way.
uint64_t TiedBytes(const RunSpec& spec, uint32_t vocabulary, bool first, bool last) {
  if (first == last || !spec.model.TrainsTiedMatrix()) return 0;
  uint64_t rows = spec.model.VocabularyOver(vocabulary);
  if (last) rows = std::min(rows, spec.TokensOfReplica());
  return rows * spec.model.hidden * kFloat + kTiedPieces;
}

// What replicas of a stage with so many parameters and moments, on all of its ranks, need beside
// what one needs, or do not. In bytes.
struct OfReplicas {
  bool shares_moments = false;  // each has its own part of them
  uint64_t moments = 0;         // that one would have, and this one has not
  uint64_t numbers = 0;         // fp32 of the own part, and of all
  uint64_t messages = 0;        // on their way, in the host's memory
  uint64_t joined = 0;          // what ranks hold, put together there
  uint64_t in_state = 0;        // what a checkpoint has beside parameters and moments
};
OfReplicas ReplicasOf(const RunSpec& spec, uint64_t parameters, uint64_t moments) {
  const uint32_t replicas = spec.replicas.count;
  if (replicas == 1) return {};
  const replicas::GradientOptions& gradients = spec.replicas.gradients;
  const bool keeps = gradients.feedback || gradients.form == replicas::GradientForm::kTagc;
  const bool rounds = spec.replicas.parameters != replicas::ParameterForm::kFp32;
  const bool apart = spec.replicas.trains_apart();
  const uint64_t own = kFloat * PartOf(parameters, replicas), all = kFloat * parameters;
  const uint64_t residual = keeps ? all : 0;
  // As the step began: a step that is skipped gives back what it took.
  const uint64_t before = spec.train.on_nonfinite == OnNonfinite::kSkip && !apart ? residual : 0;
  // Gradients of others' parts, theirs of the own one, and the own part's new parameters, at most
  // in fp32.
  OfReplicas of{.shares_moments = !apart,
                .moments = apart ? 0 : moments - PartOf(moments, replicas),
                .numbers = 2 * own + residual + before,
                .messages = 3 * own * (replicas - 1),
                .joined = spec.group.tensor > 1 ? 2 * all : 0,
                .in_state = residual + (rounds ? own : 0)};
  if (apart) {
    of.numbers += own + 3 * all;  // momentum; anchors, what was taken, differences
    of.in_state += own;
    if (gradients.local.delay > 0) of.in_state += all;  // beside what replicas have alike
  }
  return of;
}

// The tables of tokens of the codec that has the most rows of them; no rows: no codec has any.
codec::predict::TablesShape LargestTables(const RunSpec& spec, uint32_t vocabulary) {
  codec::predict::TablesShape most;
  const auto add = [&](const CodecSpec& codec) {
    if (!codec.predicts_by_tokens()) return;
    const auto shape =
        codec::predict::TablesShapeFor(**codec.Get(), vocabulary, BoundaryShape(spec).channels);
    if (shape.rows() > most.rows()) most = shape;
  };
  const auto add_said = [&](const CodecSpec& said) {
    if (!IsAuto(said)) return add(said);
    for (const std::vector<CodecPair>& of_replica : spec.links.chosen) {
      for (const CodecPair& pair : of_replica) add(pair.forward);
    }
    if (!spec.links.chosen.empty()) return;
    for (const codec::Rung& rung : OpenCodecs(spec, Direction::kForward)) add(rung.codec);
  };
  add_said(spec.links.codecs.forward);
  for (const auto& [worker, exception] : spec.links.by_worker) add_said(exception.codecs.forward);
  return most;
}

// As arrays of a checkpoint (worker/pipeline/boundary_tables.h): rows in bf16, their mean and
// counts in fp32.
uint64_t TableArrayBytes(const RunSpec& spec, uint32_t vocabulary) {
  const codec::predict::TablesShape shape = LargestTables(spec, vocabulary);
  if (shape.rows() == 0) return 0;
  return kHalf * shape.rows() * shape.channels + kFloat * (shape.rows() + 1 + shape.channels);
}

}  // namespace

uint64_t StageParameters(const ModelSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                         bool last) {
  return TrainedBy(spec, vocabulary, layers, first, last, /*ranks=*/{});
}

uint64_t RankParameters(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                        bool last) {
  return TrainedBy(spec.model, vocabulary, layers, first, last, RanksOf(spec.group));
}

uint64_t StageMoments(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                      bool last) {
  return MomentsOf(spec, vocabulary, layers, first, last, /*ranks=*/{});
}

uint64_t TableBytes(const RunSpec& spec, uint32_t vocabulary) {
  return LargestTables(spec, vocabulary).bytes();
}

uint64_t StageStateBytes(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                         bool last) {
  const uint64_t parameters = StageParameters(spec.model, vocabulary, layers, first, last);
  const uint64_t moments = StageMoments(spec, vocabulary, layers, first, last);
  const OfReplicas replicas = ReplicasOf(spec, parameters, kFloat * moments);
  // Passes of the next step compute with parameters of their own where steps overlap.
  const uint64_t versions = TraitsOf(spec.pipeline.schedule).weight_versions();
  const uint64_t older = (versions - 1) * parameters;
  return kFloat * (parameters + older + moments) - replicas.moments + replicas.in_state +
         (last ? 0 : TableArrayBytes(spec, vocabulary));
}

StageMemory MemoryOf(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                     bool last, bool on_gpu) {
  const bool bf16 = spec.train.dtype == ComputeDtype::kBf16;
  const uint64_t tokens = uint64_t{spec.train.microbatch_size} * spec.model.context;
  // The boundary has the own channels of all ranks.
  const uint64_t boundary = BoundaryShape(spec).elements() * kFloat;
  const uint64_t gradient = BoundaryShape(spec, Direction::kBackward).elements() * kFloat;
  const uint64_t hidden = tokens * spec.model.hidden * kFloat;
  const model::Family& family = model::FamilyOf(spec.model);
  const uint32_t ranks = spec.group.tensor;
  model::Kept kept_by_block = family.kept_by_block(spec.model, RanksOf(spec.group));
  kept_by_block.half += RanksOfBlock(spec.model, RanksOf(spec.group));
  if (on_gpu) kept_by_block.half += PartOf(RepeatedKeysAndValues(spec), ranks);
  kept_by_block.half += PartOf(JoinedChunks(spec, on_gpu), ranks);
  const uint64_t of_block = tokens * BytesOf(kept_by_block, spec, on_gpu);
  const uint64_t all_rows = spec.model.VocabularyOver(vocabulary);
  const uint64_t rows = PartOf(all_rows, ranks);  // of a rank
  const uint32_t slices = spec.pipeline.SlicesNow();
  const model::LossChunks chunks = model::LossChunksOf(tokens / slices, all_rows);
  const uint64_t logits = last ? chunks.tokens * rows * kFloat : 0;
  // Capped ones are kept, too, and what they were before.
  const uint64_t kept_logits = spec.model.logit_cap > 0 ? 3 * logits : logits;
  const uint64_t of_loss =
      last ? chunks.tokens * BytesOf(family.kept_by_final_norm(spec.model), spec, on_gpu) +
                 kept_logits
           : 0;
  const uint64_t casts =
      bf16 ? CastParameters(spec.model, vocabulary, layers, last, RanksOf(spec.group)) * kHalf : 0;

  const uint64_t parameters = RankParameters(spec, vocabulary, layers, first, last);
  const bool rounded = spec.train.optimizer.moments == MomentDtype::kBf16;
  const uint64_t moments = MomentsOf(spec, vocabulary, layers, first, last, RanksOf(spec.group)) *
                           (rounded ? kHalf : kFloat);
  const uint64_t parameters_of_all = StageParameters(spec.model, vocabulary, layers, first, last);
  const uint64_t moments_of_all =
      StageMoments(spec, vocabulary, layers, first, last) * (rounded ? kHalf : kFloat);
  const OfReplicas replicas = ReplicasOf(spec, parameters_of_all, moments_of_all);
  StageMemory memory;
  const uint64_t versions = TraitsOf(spec.pipeline.schedule).weight_versions();
  memory.fixed =
      versions * (2 * kFloat * parameters + casts) + (replicas.shares_moments ? 0 : moments) +
      FrozenBytes(spec, vocabulary, layers, first, last) + MuonBytes(spec, vocabulary, layers) +
      (rounded && on_gpu ? kRoundingBytes : 0) + kBoundaryBuffers / 2 * (boundary + gradient) +
      kLogitsAtWork * logits + (on_gpu ? kProgramBytes : PartOf(kProgramBytes, ranks));
  // The output without adapters waits while a pass with adapters runs.
  if (spec.train.dpo) memory.fixed += boundary;
  const uint64_t tables = TableBytes(spec, vocabulary);
  const uint64_t boundaries = (first ? 0 : 1) + (last ? 0 : 1);
  if (tables > 0) memory.fixed += boundaries * (tables + kTensorsOfTables * boundary);
  uint64_t in_host =
      SnapshotsAtATime(spec) * StageStateBytes(spec, vocabulary, layers, first, last) +
      TiedBytes(spec, vocabulary, first, last) +
      kTablesOnTheirWay * TableArrayBytes(spec, vocabulary) + replicas.messages + replicas.joined;
  const uint64_t exchange =
      replicas.numbers + (replicas.shares_moments ? moments_of_all - replicas.moments : 0);
  if (on_gpu && ranks == 1 &&
      replicas.shares_moments) {  // worker/stage/replicas/torch_arithmetic.h
    memory.fixed += exchange + CodingBytes(spec, vocabulary);
  } else {
    in_host += exchange;
    if (on_gpu && spec.replicas.count > 1) in_host += 2 * kFloat * ranks * parameters;
  }
  if (on_gpu) {
    memory.host = in_host + kBoundaryBuffers / 2 * (boundary + gradient) + ranks * kPinnedBytes +
                  kProgramBytes;
  } else {
    memory.fixed += PartOf(in_host, ranks);
  }
  memory.fixed += DropoutBytes(spec, /*copies=*/2, on_gpu);
  memory.per_flight = 2 * boundary;
  const bool recomputes = spec.pipeline.recompute != Recompute::kNone;
  // Forward then leaves the logits for backward.
  const bool keeps_logits = !recomputes && chunks.count == 1;
  if (keeps_logits) {
    memory.per_flight += slices * of_loss;
  } else {
    memory.fixed += of_loss;
  }
  // Each rank has keys and values of its own heads; fewer heads than ranks are repeated.
  const uint32_t ranks_of_heads =
      spec.model.kv_heads == 0 ? ranks : std::min(ranks, spec.model.kv_heads);
  memory.per_flight +=
      layers * PartOf(PastBytes(spec, tokens, on_gpu), ranks_of_heads) + MaskBytes(spec, on_gpu);
  // Recorded passes have memory of their own for it.
  (on_gpu ? memory.per_flight : memory.fixed) +=
      layers * PartOf(ReferencePastBytes(spec, tokens), ranks_of_heads);
  switch (spec.pipeline.recompute) {
    case Recompute::kNone:
      memory.per_flight += layers * of_block;
      break;
    case Recompute::kBlocks:
      memory.per_flight +=
          (std::max(layers, 1u) - 1) * PartOf(hidden, spec.group.sequence ? ranks : 1);
      memory.fixed += std::min(layers, 1u) * of_block;
      break;
    case Recompute::kStage:
      memory.fixed += layers * of_block;
      break;
  }
  if (!on_gpu) return memory;
  // When the scores of a block are made again, the loss has given back its logits, and the block's
  // MLP what was kept of it.
  const uint64_t of_mlp =
      spec.pipeline.recompute == Recompute::kBlocks && spec.model.experts == 0
          ? kKeptByMlp * PartOf(tokens * spec.model.intermediate, ranks) * (bf16 ? kHalf : kFloat)
          : 0;
  const uint64_t given_back = kLogitsAtWork * logits + (keeps_logits ? 0 : of_loss) + of_mlp;
  const uint64_t scores = ScoreBytes(spec);
  memory.fixed += kCublasBytes + kBoundariesInPassing * boundary + scores -
                  std::min(scores, given_back) + QueryGradientBytes(spec);
  if (!recomputes) {
    memory.per_flight += boundary + kSegmentBytes + DropoutBytes(spec, /*copies=*/1, on_gpu);
  }
  // The graph that keeps the activations of a microbatch also computes the reference's logits.
  if (spec.train.dpo && !recomputes && !keeps_logits) memory.per_flight += logits;
  // Passes are recorded of both versions, whichever is in flight.
  memory.per_flight *= versions;
  if (keeps_logits) memory.per_flight += logits + (bf16 ? logits / kFloat * kHalf : 0);
  return memory;
}

uint64_t StageMemoryBytes(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                          bool last, uint32_t depth, bool on_gpu) {
  return MemoryOf(spec, vocabulary, layers, first, last, on_gpu).At(depth);
}

}  // namespace longhaul::coordinator
