// One pipeline stage of a transformer: parameters, forward, backward and optimizer. The executor
// (worker/pipeline) calls it. This interface hides LibTorch.
//
// The first stage has the embedding. Each stage has `layers` blocks with causal attention. The last
// stage has norm, head and mean cross-entropy. A single stage is the whole model. Model families:
// gpt.h, llama.h, moe.h.
//
// Initial parameters are random numbers by Philox, keyed by the seed and the parameter's name. So
// they do not depend on how layers are divided into stages. Names are global: they number blocks
// through the whole model. Family gpt has names like "h.3.attn.qkv.weight", family llama those of
// published checkpoints, like "model.layers.3.self_attn.q_proj.weight".
//
// A microbatch may be cut into sequence chunks, called "slices"; a pass computes one at a time.
//
// Threads: one thread at a time; a BoundaryTensor may be used and released on any thread. Errors:
// kInvalidArgument (shape), kResourceExhausted (memory), kInternal (LibTorch's exception).
#pragma once

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
#include "worker/stage/replicas/tied_matrix.h"

namespace longhaul::worker {

struct StageOptions {
  ModelSpec model;
  TrainSpec train;
  uint32_t vocabulary = 256;             // number of the tokenizer's ids
  uint32_t first_layer = 0, layers = 0;  // this stage's blocks
  bool first = true, last = true;        // has the embedding; has norm, head and loss
  Recompute recompute = Recompute::kNone;
  uint32_t threads = 1;  // LibTorch's intra-op threads
  DeviceName device;     // a GPU needs LoadTorchCuda first (torch_cuda.h)
  // Devices of a tensor-parallel group, by rank; the first must be `device`. Each rank has
  // `threads` threads. Empty: one rank. Groups are made by MakeGroupStage (group/group_stage.h),
  // not by Create.
  std::vector<DeviceName> ranks;
  GroupSpec group;           // how ranks share the stage; `tensor`: number of ranks
  uint32_t slices = 1;       // slices of a microbatch; must be 1 in groups and in family moe
  bool graphs = true;        // on a GPU: passes run as CUDA graphs, one launch a pass; same results
  bool timing_only = false;  // for measuring: parameters are any normal numbers, quickly made
  bool masked_targets = false;    // some targets do not count (kNoTarget)
  bool masked_attention = false;  // tokens attend only within documents, which begin at position 0
  bool loads = false;             // Load will set the parameters; until then they are zero
  // Data-parallel replicas update the parameters together (SharedParameters), so the stage has no
  // optimizer of its own.
  bool shares_step = false;
  std::optional<ReplaySpec> replay;  // sleep instead of computing (replay_stage.h)

  // Rows of embedding and head.
  uint32_t vocabulary_rows() const { return model.VocabularyOver(vocabulary); }
  uint32_t slice_tokens() const { return model.context / slices; }
  // Returns the stage's parameters, in the descriptor's order.
  std::vector<model::PlacedParameter> parameters() const {
    return model::ParametersOf(
        model, vocabulary_rows(),
        {.first_layer = first_layer, .layers = layers, .embedding = first, .head = last});
  }
  friend bool operator==(const StageOptions&, const StageOptions&) = default;
};

// The activations of a slice or their gradient: (microbatch_size, context / slices, hidden) fp32,
// in the memory of the stage's device. In a partial group (group/rank_group.h) the shared channels
// come first, then the own channels of each rank. When a stage returns it, no kernel still writes
// it.
struct BoundaryTensor {
  codec::TensorView view;
  std::shared_ptr<const void> owner;  // keeps view.data valid
  // If a codec predicts by tokens: the ids of the tokens, sample by sample. Else null.
  std::shared_ptr<const std::vector<uint32_t>> token_ids = nullptr;
};

// An array of a checkpoint, with a global name.
struct NamedArray {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;  // fp32, row-major
};
// A stage's part of a checkpoint. Its arrays are copies.
struct StageSnapshot {
  uint64_t step = 0;                   // number of steps taken, with the skipped ones
  std::vector<NamedArray> parameters;  // all trained parameters; with LoRA only the adapters
  // The optimizer state: "<parameter>.exp_avg" and "<parameter>.exp_avg_sq" (AdamW), or
  // "<parameter>.momentum" (Muon). bf16 state is stored as fp32, which is exact.
  std::vector<NamedArray> moments;
  // Token tables of the codec at the boundary to the next stage, if it predicts
  // (worker/pipeline/boundary_tables.h). Stage::Snapshot leaves this empty.
  std::vector<NamedArray> tables = {};
};

// Parts of the squared gradient norm.
struct SquaredNorm {
  double sum = 0;  // of this stage and all later ones
  double own = 0;  // of this stage alone
};

// The memory in which the numbers of a SharedParameter are: of the host, or of the stage's device.
enum class SharedIn : uint8_t { kHost, kDevice };
// A parameter that data-parallel replicas exchange.
struct SharedParameter {
  std::string name;
  std::vector<int64_t> shape;
  bool decays = false;
  uint32_t block_matrices = 0;  // as in worker/stage/model/layers.h
  // True: another stage holds the same numbers, and counts them in the gradient norm.
  bool counted_elsewhere = false;
  std::span<const float> gradient;  // empty before the first Backward of a step
  std::span<float> value;
};

// A target whose loss does not count.
inline constexpr int32_t kNoTarget = -1;

// Reads the values of a parameter from elsewhere into `values`, row-major: all of its elements, or
// this rank's share.
using ReadParameter =
    std::function<Status(const model::PlacedParameter& parameter, std::span<float> values)>;

// What the ranks of a stage have exchanged since the stage was made.
struct CollectiveUse {
  std::string forward, backward;  // how hidden states and gradients are exchanged, for people
  CollectiveBytes sent;           // by all ranks, after compression
  // Seconds inside collectives, with waiting for other ranks; the mean over ranks. nullopt:
  // unknown, as on a GPU, where calls are only queued.
  std::optional<double> seconds;
};

class Stage {
 public:
  // Creates a stage of one rank. `options.threads` applies only to calls of this stage.
  static StatusOr<std::unique_ptr<Stage>> Create(const StageOptions& options);
  virtual ~Stage() = default;

  // Records CUDA graphs for `in_flight` microbatches now, so that none is recorded during a step.
  // Optional: graphs that are missing are recorded when they are first needed.
  virtual Status PreparePasses(uint32_t in_flight) {
    static_cast<void>(in_flight);
    return absl::OkStatus();
  }

  // --- One slice of a microbatch. Tokens attend to earlier slices, whose keys and values the stage
  // keeps. So calls for the slices of a microbatch must come in SliceOrder.
  //
  // Runs forward. The first stage reads `tokens`, the others copy `activation`, of any dtype.
  // Returns the output. The last stage returns nullopt instead, and keeps the loss for Loss and
  // Backward.
  struct Input {
    // Ids of the whole microbatch: microbatch_size x context, row-major.
    std::span<const int32_t> tokens;
    codec::TensorView activation;      // of this slice
    std::span<const int32_t> targets;  // as `tokens`, on the last stage; may have kNoTarget
    // With masked_attention, on each stage: for each token the number of its document, as `tokens`.
    // In each row numbers ascend from 0.
    std::span<const int32_t> documents;
    // With masked_targets: the loss of a microbatch is the sum over targets that count, divided by
    // this number. It is the mean count of a microbatch, so that the mean loss of a step is the
    // mean over all its targets.
    double counted = 0;
  };
  virtual StatusOr<std::optional<BoundaryTensor>> Forward(Slice slice, const Input& input) = 0;
  // Returns what the slice adds to the mean cross-entropy of its microbatch, in nats per token.
  // Only on the last stage, between Forward and Backward.
  virtual StatusOr<double> Loss(Slice slice) const = 0;
  // Runs backward, and frees the slice's activations. Adds its gradients, times 1 / microbatches,
  // to the accumulated gradients. Call it in SliceOrder, after Forward of all slices of the
  // microbatch. `output_gradient`: not read on the last stage. Returns the gradient of the input;
  // nullopt on the first stage.
  virtual StatusOr<std::optional<BoundaryTensor>> Backward(
      Slice slice, const codec::TensorView& output_gradient) = 0;

  // Runs forward for validation: keeps nothing for backward. On the last stage it sets `*loss` to
  // the value that Loss would return.
  virtual StatusOr<std::optional<BoundaryTensor>> Evaluate(Slice slice, const Input& input,
                                                           double* loss) = 0;

  // --- Once a step, after the last Backward.
  //
  // Adds the squares of this stage's gradients to `sum`. The last stage begins with 0, and each
  // stage passes its result to the previous one. The first stage's result is the model's squared
  // norm. Parameters are summed from the model's last to its first, each in double in a fixed
  // order. So the result does not depend on how layers are divided into stages.
  virtual StatusOr<SquaredNorm> AddSquaredGradientNorm(double sum) const = 0;
  // Updates the parameters by the run file's optimizer (AdamW or Muon), with decoupled weight decay
  // on matrices only. Gradients are multiplied by `gradient_scale` (clipping) first, and cleared at
  // the end. `step` counts from 1. kFailedPrecondition: a scale that is not finite and positive, or
  // a step in a wrong order.
  virtual Status OptimizerStep(Step step, double learning_rate, double gradient_scale) = 0;
  // Ends a step without an update, in place of OptimizerStep: clears the gradients and counts the
  // step. Parameters and optimizer state do not change.
  virtual Status SkipStep(Step step) = 0;

  // --- For data-parallel replicas. With StageOptions::shares_step they update the parameters
  // together, in place of OptimizerStep.
  //
  // Returns all trained parameters, in the descriptor's order, valid until EndSharedStep or
  // SkipStep. They are copies if `memory` is kHost and the stage computes on a GPU. A group returns
  // copies of whole parameters. `memory`: kDevice only if shares_on_device().
  virtual StatusOr<std::vector<SharedParameter>> SharedParameters(SharedIn memory);
  virtual bool shares_on_device() const { return false; }
  // Call it before the last Backward of a step. While that Backward runs, the stage calls
  // `final(k)` on the calling thread when the gradients of the head and of blocks k and later,
  // counted from this stage's first, are final. k decreases and is never 0: when Backward returns,
  // all gradients are final. Returns false if `final` will not be called, because this stage cannot
  // tell.
  virtual bool TellWhatIsFinal(std::function<void(uint32_t)> final) {
    static_cast<void>(final);
    return false;
  }
  // Ends the step: takes the values that the caller wrote to SharedParameters, and clears the
  // gradients.
  virtual Status EndSharedStep(Step step);
  // Between two steps, takes the values that the caller wrote to SharedParameters. For replicas
  // that train apart, whose stages have their own optimizers.
  virtual Status TakeSharedValues();

  // --- When consecutive steps overlap. Passes of the next step compute with older parameters. So a
  // stage has a twin, and steps alternate between the two.
  //
  // Makes the twin: a second stage with the same options and parameters. It has no optimizer until
  // its first TakeTurnFrom.
  virtual StatusOr<std::unique_ptr<Stage>> MakeTwin() const;
  // Takes the newer parameters, the step count and the optimizer from `twin`, which keeps its
  // parameters. Call it when all of this stage's step is done except the update.
  virtual Status TakeTurnFrom(Stage* twin);

  // Returns copies of the parameters and the optimizer state; with shares_step, only the
  // parameters.
  virtual StatusOr<StageSnapshot> Snapshot() const = 0;
  // Restores the parameters, the optimizer state and the step count from `snapshot`. Ignores other
  // arrays, as of a checkpoint of a larger stage. kFailedPrecondition: an array is missing or has
  // another shape, or the snapshot is of another optimizer; the message names it.
  virtual Status Restore(const StageSnapshot& snapshot) = 0;

  // Sets the published parameters to values from `read`, one at a time; LoRA's adapters stay
  // random. With StageOptions::loads, call it once, before any other method. If it fails, do not
  // use the stage.
  virtual Status Load(const ReadParameter& read) = 0;

  // Drops the microbatches and gradients of an unfinished step. Keeps parameters and optimizer
  // state.
  virtual Status DropStep() = 0;
  // Number of steps taken, with the skipped ones.
  virtual uint64_t steps() const = 0;

  // The tied matrix of which another stage holds a copy. This stage owns the result. Null: there is
  // none.
  virtual TiedMatrix* tied_matrix() { return nullptr; }

  // For each block with experts, the number of tokens of each expert in the last step.
  virtual std::vector<std::vector<int64_t>> TokensOfExperts() const { return {}; }

  // Returns the use of collectives since the stage was made; empty with one rank.
  virtual CollectiveUse collectives() const { return {}; }

  // Number of trained parameters, counted in elements.
  virtual uint64_t parameter_count() const = 0;
  // Most bytes of GPU memory that LibTorch held since the stage was made; 0 on the CPU.
  virtual uint64_t peak_memory_bytes() const { return 0; }
  // Bytes of the device's memory that are held now. On a GPU: all memory that LibTorch has, with
  // that of CUDA graphs. On the CPU: parameters, optimizer state, and gradients if there are any.
  virtual uint64_t memory_bytes() const { return 0; }
};

using MakeStage = std::function<StatusOr<std::unique_ptr<Stage>>(const StageOptions& options)>;

// Times for one microbatch in one part of the model.
struct MeasuredPass {
  double forward = 0, backward = 0;  // seconds, with the time inside collectives
  CollectiveBytes sent;              // by all ranks
  std::optional<double> collective_seconds;
};
// Times of the model's layers on this machine: lower quartiles, after a warm-up. A group is timed
// as a whole.
struct MeasuredLayerTimes {
  MeasuredPass embedding, block, head;
  // Set if each rank of a group has only a part of the hidden state: a stage without layers, which
  // only makes the exchanges before and after layers. `embedding` and `head` contain these
  // exchanges; `block` does not.
  std::optional<MeasuredPass> ends;
  double optimizer_seconds_per_parameter = 0;
  std::string forward_collective, backward_collective;  // as in CollectiveUse
};
// Measures for about a second, on a GPU for about two, because its clocks must rise first.
// `make_stage` must make groups if options.ranks is not empty.
StatusOr<MeasuredLayerTimes> MeasureLayerTimes(const StageOptions& options,
                                               const MakeStage& make_stage = Stage::Create);

// Returns the learning rate of `step`, counted from 1: a linear warm-up, then the run file's
// schedule (LrScheduleKind). Constant after the last step.
double LearningRate(const TrainSpec& train, Step step);
// Returns min(1, clip_norm / (norm + 1e-6)), which is NaN if the norm is; 1 if clip_norm is 0.
double ClipScale(double clip_norm, double squared_norm);

}  // namespace longhaul::worker
