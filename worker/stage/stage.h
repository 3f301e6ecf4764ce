// One pipeline stage of a transformer: parameters, forward, backward, optimizer. LibTorch is behind
// it.
//
// The model: embedding on the first stage, `layers` blocks with causal attention, norm + head +
// mean cross-entropy on the last. A single stage is the whole model. Families: gpt.h, llama.h, and
// moe.h with llama.h.
// Parameters are initialised by Philox keyed by (seed, parameter name), so they do not depend on
// how layers are split. Names are global: family gpt has "wte", "h.3.attn.qkv.weight", ..., family
// llama those of published checkpoints, "model.layers.3.self_attn.q_proj.weight", ...
//
// Threads: one thread at a time, except BoundaryTensor's memory, which lives as long as its owner.
// Errors: kInvalidArgument (shape), kResourceExhausted (memory), kInternal (LibTorch's exception).
#ifndef LONGHAUL_WORKER_STAGE_STAGE_H_
#define LONGHAUL_WORKER_STAGE_STAGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/device_name.h"
#include "base/ids.h"
#include "base/status.h"
#include "codec/codec.h"
#include "run/file/run_spec.h"
#include "run/model/family.h"
#include "run/plan/collective_bytes.h"
#include "worker/stage/tied_matrix.h"

namespace longhaul::worker {

struct StageOptions {
  ModelSpec model;
  TrainSpec train;
  uint32_t vocabulary = 256;             // the tokenizer's: no id is larger
  uint32_t first_layer = 0, layers = 0;  // this stage's blocks
  bool first = true, last = true;        // holds the embedding / norm, head and loss
  Recompute recompute = Recompute::kNone;
  uint32_t threads = 1;  // LibTorch's intra-op threads
  DeviceName device;     // a GPU: LoadTorchCuda came before (torch_cuda.h)
  // A tensor-parallel group: the device of each rank, the first of which is `device`, with
  // `threads` each. Empty: one rank. Stage::Create makes no group (group/group_stage.h).
  std::vector<DeviceName> ranks;
  GroupSpec group;      // how they share it; `tensor` is their number
  uint32_t slices = 1;  // of a microbatch; more than one: not of a group, nor of family moe
  bool graphs = true;   // a GPU: passes are recorded and replayed, the same work in one launch each
  bool timing_only = false;     // parameters are any normal numbers, made on the device in no time
  bool masked_targets = false;  // the loss of some does not count
  bool masked_attention = false;  // tokens attend within their document, whose positions begin at 0
  bool loads = false;  // Load gives parameters their first values; until then they are zero
  // Replicas step the stage together (Stage::SharedParameters): it has no optimizer of its own.
  bool shares_step = false;
  std::optional<ReplaySpec> replay;  // sleeps instead of computing (replay_stage.h)

  // Of embedding and head.
  uint32_t vocabulary_rows() const { return model.VocabularyOver(vocabulary); }
  uint32_t slice_tokens() const { return model.context / slices; }
  friend bool operator==(const StageOptions&, const StageOptions&) = default;
};

// An activation or its gradient of a slice, (microbatch_size, context / slices, hidden): fp32 in
// the memory of the stage's device. Where a group shares a part of the channels, the shared ones
// and then each rank's own. What a stage gives is whole: nothing that is under way writes it.
struct BoundaryTensor {
  codec::TensorView view;
  std::shared_ptr<const void> owner;  // keeps view.data valid
  // Of an activation where codecs predict by tokens: their ids, sample by sample. Else null.
  std::shared_ptr<const std::vector<uint32_t>> token_ids = nullptr;
};

// What a checkpoint holds, under global names: all that is trained, with LoRA the adapters alone.
// Copies, independent of the stage.
struct NamedArray {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;  // fp32, row-major
};
struct StageSnapshot {
  uint64_t step = 0;  // taken, those that were skipped among them
  std::vector<NamedArray> parameters;
  // "<parameter>.exp_avg" and "<parameter>.exp_avg_sq" (AdamW), or "<parameter>.momentum" (Muon).
  // Moments that are kept in bf16 stand here in fp32, which has all of their values.
  std::vector<NamedArray> moments;
  // What the codec of the boundary below knows of tokens (worker/pipeline/boundary_tables.h), where
  // that predicts. No stage's Snapshot has any.
  std::vector<NamedArray> tables = {};
};

// Of gradients.
struct SquaredNorm {
  double sum = 0;  // of this stage and all nearer to the model's end
  double own = 0;  // this stage's part alone, whatever the others have
};

// A parameter that replicas of the stage step together, in memory of the host or of its device.
enum class SharedIn : uint8_t { kHost, kDevice };
struct SharedParameter {
  std::string name;
  std::vector<int64_t> shape;
  bool decays = false;
  uint32_t block_matrices = 0;  // as in worker/stage/layers.h
  // Another stage has the same numbers, and counts them: in the norm of gradients.
  bool counted_elsewhere = false;
  std::span<const float> gradient;  // empty before the first Backward of a step
  std::span<float> value;
};

// A target whose loss does not count.
inline constexpr int32_t kNoTarget = -1;

// Gives parameters values from elsewhere: `values` of parameter.shape.elements(), row-major.
using ReadParameter =
    std::function<Status(const model::PlacedParameter& parameter, std::span<float> values)>;

// What the ranks of a stage have exchanged since the stage was made.
struct CollectiveUse {
  std::string forward, backward;  // what exchanges hidden states and their gradients, in words
  CollectiveBytes sent;           // by all ranks to each other, as they went
  // Inside calls, waiting for other ranks included; the mean of the ranks. nullopt: not known, as
  // on a GPU, whose calls are queued.
  std::optional<double> seconds;
};

class Stage {
 public:
  // LibTorch's inter-op threads are per process; `options.threads` hold for each call of this
  // stage alone.
  static StatusOr<std::unique_ptr<Stage>> Create(const StageOptions& options);
  virtual ~Stage() = default;

  // Before a step with so many microbatches between Forward and Backward at a time: on a GPU their
  // passes are recorded now, and none while the step runs. Nothing is lost where it is not called.
  virtual Status PreparePasses(uint32_t in_flight) {
    static_cast<void>(in_flight);
    return absl::OkStatus();
  }

  // --- One slice of a microbatch. Tokens attend to those of the slices before, whose keys and
  // values the stage keeps; so a microbatch's slices come in SliceOrder.
  // First stage: `tokens`; others: `activation` (any dtype; copied).
  // Not last: gives the output. Last: runs the loss too, kept for Backward; gives nullopt.
  struct Input {
    // Ids of the whole microbatch: microbatch_size x context, row-major.
    std::span<const int32_t> tokens;
    codec::TensorView activation;      // of the slice
    std::span<const int32_t> targets;  // last stage; kNoTarget with masked_targets
    // With masked_attention, on every stage: of each token the number of its document among those
    // of its row, ascending from 0.
    std::span<const int32_t> documents;
    // With masked_targets: the loss is the sum over targets that count, by this number, so that the
    // mean over a step's microbatches is that over its targets.
    double counted = 0;
  };
  virtual StatusOr<std::optional<BoundaryTensor>> Forward(Slice slice, const Input& input) = 0;
  // Of a slice that Forward ran its share in the mean cross-entropy of the microbatch, nats a token
  // (last stage): those of all slices add up to it.
  virtual StatusOr<double> Loss(Slice slice) const = 0;
  // Adds the slice's gradients, scaled by 1 / microbatches at the loss, to the accumulated ones and
  // frees its graph. In SliceOrder, when all slices of the microbatch have gone forward. Not last:
  // takes the output's gradient. Not first: gives the input's.
  virtual StatusOr<std::optional<BoundaryTensor>> Backward(
      Slice slice, const codec::TensorView& output_gradient) = 0;

  // Forward only, no graph kept; microbatch after microbatch. Last stage: as Loss in *loss.
  virtual StatusOr<std::optional<BoundaryTensor>> Evaluate(Slice slice, const Input& input,
                                                           double* loss) = 0;

  // --- Once a step, after the last Backward.
  // `sum` plus the sum of squares of this stage's gradients: parameter by parameter, from the
  // model's end to its start, each in double in a fixed order. Riding from the last stage (sum = 0)
  // to the first it is the global squared norm, whatever the split.
  virtual StatusOr<SquaredNorm> AddSquaredGradientNorm(double sum) const = 0;
  // The optimizer of the run file (AdamW, Muon), with decoupled weight decay on matrices only.
  // Gradients are first multiplied by `gradient_scale` (clipping), then forgotten. `step` counts
  // from 1.
  virtual Status OptimizerStep(Step step, double learning_rate, double gradient_scale) = 0;
  // Instead of OptimizerStep: gradients are forgotten and the step counts as taken. Parameters and
  // what the optimizer remembers stay to the bit.
  virtual Status SkipStep(Step step) = 0;

  // --- Where replicas step it together (StageOptions::shares_step), instead of OptimizerStep.
  // All that is trained, in the order of its descriptor, valid until EndSharedStep or SkipStep, in
  // memory of the host or, where shares_on_device, of its device. On a GPU those of the host are
  // copies; of ranks that share the stage they are whole, and copies.
  virtual StatusOr<std::vector<SharedParameter>> SharedParameters(SharedIn memory);
  virtual bool shares_on_device() const { return false; }
  // Before the last Backward of a step: as it goes on, `final(k)` says that gradients of the blocks
  // from k on, counted from this stage's first one, and of the head are what they will be. On the
  // thread that calls, each time with a smaller k, never 0: all are final when Backward has ended.
  // False: nothing is said, because it is computed in one go or because gradients get their memory
  // in it.
  virtual bool TellWhatIsFinal(std::function<void(uint32_t)> final) {
    static_cast<void>(final);
    return false;
  }
  // What others have written to the values becomes the stage's, and gradients are forgotten.
  virtual Status EndSharedStep(Step step);
  // The same between two steps, of a stage that has an optimizer of its own.
  virtual Status TakeSharedValues();

  // --- Where steps overlap. Passes of a step and those of the next compute with
  // different parameters, so a stage has a twin: passes go to the two in turn, step by step.
  // Another stage with the same options and parameters. It has no optimizer until its turn comes.
  virtual StatusOr<std::unique_ptr<Stage>> MakeTwin() const;
  // When all of its own step is done but the update, for which it takes what `twin` has: parameters
  // that are newer than its own, the steps taken, and the optimizer. The twin keeps its parameters.
  virtual Status TakeTurnFrom(Stage* twin);

  // All of one step: it returns when everything is copied. Without moments where replicas step it.
  virtual StatusOr<StageSnapshot> Snapshot() const = 0;
  // Takes from `snapshot` what this stage has; kFailedPrecondition naming the first parameter that
  // is missing or has another shape, or the optimizer where it is of another kind. Extra names are
  // fine (a checkpoint of a larger stage).
  virtual Status Restore(const StageSnapshot& snapshot) = 0;

  // Takes the first values of all parameters but LoRA's adapters, which are random, from `read`,
  // one parameter after the other: once, before anything else, where the options say so. Where this
  // fails the stage is of no use.
  virtual Status Load(const ReadParameter& read) = 0;

  // Forgets the step under way: what its microbatches have left, and gradients. Parameters and
  // optimizer stay.
  virtual Status DropStep() = 0;
  // Steps taken, skipped ones among them: of which step the parameters are.
  virtual uint64_t steps() const = 0;

  // The matrix that another stage holds, too; owned by this one. Null: there is none.
  virtual TiedMatrix* tied_matrix() { return nullptr; }

  // Of each block of a mixture of experts: how many tokens of the step that was taken last went to
  // each expert. Empty: the model has none.
  virtual std::vector<std::vector<int64_t>> TokensOfExperts() const { return {}; }

  // Nothing where the stage has one rank.
  virtual CollectiveUse collectives() const { return {}; }

  // Of those that are trained: what a snapshot has.
  virtual uint64_t parameter_count() const = 0;
  // The most of a GPU's memory that LibTorch had at a time since the stage was made; 0 where nobody
  // counts it.
  virtual uint64_t peak_memory_bytes() const { return 0; }
  // What it has of its device's memory between steps: of a GPU all that LibTorch took, recorded
  // passes too; of the CPU parameters, moments, and gradients where they stay.
  virtual uint64_t memory_bytes() const { return 0; }
};

using MakeStage = std::function<StatusOr<std::unique_ptr<Stage>>(const StageOptions& options)>;

// Of one microbatch through a part of the model, there and back.
struct MeasuredPass {
  double forward = 0, backward = 0;  // seconds, those inside collectives among them
  CollectiveBytes sent;              // by all ranks
  std::optional<double> collective_seconds;
};
// The layers of `options`' model on this machine, lower quartiles after warm-up, within about a
// second; on a GPU two, of which the first raises its clocks. A group's are those of all its ranks
// together: `make_stage` makes groups where options.ranks has any.
struct MeasuredLayerTimes {
  MeasuredPass embedding, block, head;
  // A stage of no layers, where ranks have a part of the hidden state each: what they exchange
  // around layers that are computed in one go. It is in `embedding` and in `head`, not in `block`.
  std::optional<MeasuredPass> ends;
  double optimizer_seconds_per_parameter = 0;
  std::string forward_collective, backward_collective;  // as CollectiveUse
};
StatusOr<MeasuredLayerTimes> MeasureLayerTimes(const StageOptions& options,
                                               const MakeStage& make_stage = Stage::Create);

// lr at `step` (from 1): linear warm-up, then as the run file's schedule says (LrScheduleKind).
// Behind the last step it stays.
double LearningRate(const TrainSpec& train, Step step);
// min(1, clip_norm / (norm + 1e-6)); 1 when clip_norm is 0. NaN norm gives NaN.
double ClipScale(double clip_norm, double squared_norm);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_STAGE_H_
