// One pipeline stage of a transformer: parameters, forward, backward and optimizer. The executor
// (worker/pipeline) calls it. This interface hides LibTorch.
//
// The first stage has the embedding. Each stage has `layers` blocks with causal attention. The last
// stage has norm, head and mean cross-entropy. A single stage is the whole model. Model families:
// gpt.h, llama.h, moe.h.
//
// Initial parameters are random numbers by Philox (base/philox.h), keyed by the seed and the
// parameter's name. So they do not depend on how layers are divided into stages. Names are global:
// they number blocks through the whole model. Family gpt has names like "h.3.attn.qkv.weight".
// Family llama has the names of published checkpoints, like
// "model.layers.3.self_attn.q_proj.weight".
//
// A microbatch may be cut into sequence chunks, called "slices" (Slice in base/ids.h). Each call of
// Forward or Backward computes one slice. A tensor-parallel group computes one stage on several
// devices; each device is a rank (group/group_stage.h).
//
// Threads: one thread at a time; a BoundaryTensor may be used and released on any thread. Errors:
// kInvalidArgument (shapes, ids, slices in a wrong order), kFailedPrecondition (steps in a wrong
// order), kResourceExhausted (memory), kInternal (LibTorch's exception).
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
  uint32_t first_layer = 0, layers = 0;  // first block in the model, and number of blocks
  bool first = true, last = true;        // has the embedding; has norm, head and loss
  Recompute recompute = Recompute::kNone;
  uint32_t threads = 1;  // LibTorch's intra-op threads
  DeviceName device;     // a GPU needs LoadTorchCuda first (torch_cuda.h)
  // Devices of a tensor-parallel group, by rank; the first must be `device`. Each rank has
  // `threads` threads. Empty: one rank. MakeGroupStage (group/group_stage.h) makes groups;
  // Stage::Create makes only stages of one rank.
  std::vector<DeviceName> ranks;
  GroupSpec group;           // how ranks share the stage; `tensor`: number of ranks
  uint32_t slices = 1;       // slices of a microbatch; must be 1 in family moe
  bool graphs = true;        // on a GPU: passes run as CUDA graphs, one launch a pass; same results
  bool timing_only = false;  // for measuring: parameters are any normal numbers, quickly made
  bool masked_targets = false;    // some targets do not count (kNoTarget)
  bool masked_attention = false;  // tokens attend within a document; its first position is 0
  bool loads = false;             // Load will set the parameters; until then they are zero
  bool loads_adapters = false;    // with `loads`: Load will set LoRA's adapters, too
  // Data-parallel replicas update the parameters together (SharedParameters), so the stage has no
  // optimizer of its own.
  bool shares_step = false;
  std::optional<ReplaySpec> replay;  // sleep instead of computing (replay_stage.h)

  // Rows of embedding and head.
  uint32_t vocabulary_rows() const { return model.VocabularyOver(vocabulary); }
  uint32_t slice_tokens() const { return model.context / slices; }
  // Returns the stage's parameters, in the order of the family's descriptor (run/model/family.h).
  std::vector<model::PlacedParameter> parameters() const {
    return model::ParametersOf(
        model, vocabulary_rows(),
        {.first_layer = first_layer, .layers = layers, .embedding = first, .head = last});
  }
  friend bool operator==(const StageOptions&, const StageOptions&) = default;
};

// What two neighbouring stages exchange for one slice: activations forward, gradients backward.
// Shape: (microbatch_size, context / slices, hidden), fp32, in the memory of the stage's device.
// With train.dpo an activation has twice as many samples (run/boundary/boundary_shape.h). A partial
// group (group/rank_group.h) has more channels than `hidden`: first the shared channels, then the
// channels that each rank has for itself. A stage returns a BoundaryTensor only after all kernels
// that write the values have ended.
struct BoundaryTensor {
  codec::TensorView view;
  std::shared_ptr<const void> owner;  // keeps view.data valid
  // Ids of the tokens, sample by sample, for a codec that predicts by tokens (codec/predict). Null:
  // no codec needs them. A Stage leaves this null; the executor sets it.
  std::shared_ptr<const std::vector<uint32_t>> token_ids = nullptr;
};

// An array of a checkpoint. `name`: global, as in the file comment.
struct NamedArray {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;  // fp32, row-major
  // The bits of bf16, row-major, in place of `values`. Only token tables have such arrays.
  std::vector<uint16_t> halves = {};

  // Returns the values or the halves as bytes, valid as long as the array is unchanged.
  std::span<const std::byte> bytes() const {
    return halves.empty() ? std::as_bytes(std::span(values)) : std::as_bytes(std::span(halves));
  }
};
// A stage's part of a checkpoint. Its arrays are copies.
struct StageSnapshot {
  uint64_t step = 0;                   // number of steps taken, with the skipped ones
  std::vector<NamedArray> parameters;  // all trained parameters; with LoRA only the adapters
  // The optimizer state: "<parameter>.exp_avg" and "<parameter>.exp_avg_sq" (AdamW), or
  // "<parameter>.momentum" (Muon). bf16 state is stored as fp32, which is exact. With data-parallel
  // replicas the state comes in pieces (snapshot/snapshot_shards.h).
  std::vector<NamedArray> moments;
  // Token tables of the codec at the boundary to the next stage, if it predicts
  // (worker/pipeline/boundary_tables.h). Stage::Snapshot leaves this empty.
  std::vector<NamedArray> tables = {};
};

// Sums of squared gradients; the square root of such a sum is a gradient norm.
struct SquaredNorm {
  double sum = 0;  // of this stage and all later ones
  double own = 0;  // of this stage alone
};

// The memory that holds the numbers of a SharedParameter: host memory, or the memory of the stage's
// device.
enum class SharedIn : uint8_t { kHost, kDevice };
// A parameter that data-parallel replicas exchange. The stage owns the memory of the spans.
// `decays`: weight decay applies. The caller writes the parameter's new values to `value`.
struct SharedParameter {
  std::string name;
  std::vector<int64_t> shape;
  bool decays = false;
  uint32_t block_matrices = 0;  // as in worker/stage/model/layers.h
  // True: another stage holds the same numbers, and counts them in the gradient norm.
  bool counted_elsewhere = false;
  std::span<const float> gradient;  // may be empty before the first Backward of a step
  std::span<float> value;
};

// A target whose loss does not count.
inline constexpr int32_t kNoTarget = -1;

// Sums over pairs of answers (train.dpo). The margin of a pair is beta times how much more the
// adapters raise the log-probability of the chosen answer than that of the rejected one.
struct PreferenceSums {
  double pairs = 0;      // number of pairs
  double preferred = 0;  // number of pairs whose margin is positive
  double margins = 0;
  PreferenceSums& operator+=(const PreferenceSums& other) {
    pairs += other.pairs, preferred += other.preferred, margins += other.margins;
    return *this;
  }
};

// Reads the values of one parameter, for example from published weights, into `values`, row-major.
// `values` has room for all elements, or for one rank's share; empty: the share has no elements. An
// error ends the load, which returns this error.
using ReadParameter =
    std::function<Status(const model::PlacedParameter& parameter, std::span<float> values)>;

// What the ranks of a stage have exchanged since the stage was made, through collective operations
// (transport/collective).
struct CollectiveUse {
  std::string forward, backward;  // how hidden states and gradients are exchanged, for people
  CollectiveBytes sent;           // by all ranks, after compression
  // Seconds inside collective calls, including the wait for other ranks; the mean over ranks.
  // nullopt: unknown. On a GPU it is unknown, because calls are only queued.
  std::optional<double> seconds;
};

class Stage {
 public:
  // Creates a stage of one rank; options.ranks must be empty. With options.replay, creates a replay
  // stage (replay_stage.h). kInvalidArgument: no stage can have these options. `options.threads`
  // applies only to calls of this stage.
  static StatusOr<std::unique_ptr<Stage>> Create(const StageOptions& options);
  virtual ~Stage() = default;

  // Records CUDA graphs for `in_flight` microbatches now, so that none is recorded during a step.
  // Call it between steps. Optional: missing graphs are recorded when they are first needed. Does
  // nothing in a stage without CUDA graphs.
  virtual Status PreparePasses(uint32_t in_flight) {
    static_cast<void>(in_flight);
    return absl::OkStatus();
  }

  // --- One slice of a microbatch. Tokens attend to earlier slices, and the stage keeps the keys
  // and values of earlier slices. So calls for the slices of a microbatch must come in SliceOrder
  // (base/ids.h).
  //
  // Runs forward and returns the output. The last stage returns nullopt instead, and keeps the loss
  // for Loss and Backward. The memory of `input` may be freed when the call has returned.
  struct Input {
    // First stage: ids of the whole microbatch, microbatch_size x context, row-major.
    std::span<const int32_t> tokens;
    // Other stages: the previous stage's output for this slice, of any dtype, in the memory of this
    // stage's device.
    codec::TensorView activation;
    // Last stage: shaped as `tokens`; kNoTarget is allowed with masked_targets.
    std::span<const int32_t> targets;
    // With masked_attention, on each stage: for each token the number of its document, shaped as
    // `tokens`. In each row, numbers ascend from 0.
    std::span<const int32_t> documents;
    // Last stage with masked_targets: the loss of a microbatch is the sum over targets that count,
    // divided by `counted`, which must be positive. The caller gives the mean count over the step's
    // microbatches; then the mean loss of a step is the mean over all targets of the step. With
    // train.dpo pairs count instead of targets: documents 2k and 2k + 1 of a row are the chosen and
    // the rejected answer of a pair if both have targets.
    double counted = 0;
    // Decides which numbers are dropped for LoRA's adapters (LoraSpec::dropout): the same number in
    // all stages, another one for each microbatch of the run. Evaluate drops nothing.
    uint64_t random = 0;
  };
  virtual StatusOr<std::optional<BoundaryTensor>> Forward(Slice slice, const Input& input) = 0;
  // Returns what the slice adds to the mean cross-entropy of its microbatch, in nats per token.
  // Call it on the last stage, between Forward and Backward of the slice; else kInvalidArgument.
  virtual StatusOr<double> Loss(Slice slice) const = 0;
  // Runs backward, frees the slice's activations, and adds the slice's gradients, times 1 /
  // microbatches, to the accumulated gradients. Call it in SliceOrder, after Forward of all slices
  // of the microbatch. `output_gradient`: the gradient of Forward's output, like Input::activation;
  // not read on the last stage. Returns the gradient of the input; nullopt on the first stage.
  virtual StatusOr<std::optional<BoundaryTensor>> Backward(
      Slice slice, const codec::TensorView& output_gradient) = 0;

  // Runs forward for validation, with the arguments and result of Forward. Keeps nothing for
  // backward. On the last stage, sets `*loss` to the value that Loss would return. `loss`: never
  // null.
  virtual StatusOr<std::optional<BoundaryTensor>> Evaluate(Slice slice, const Input& input,
                                                           double* loss) = 0;

  // A token of a slice of a microbatch; both counted from 0.
  struct Place {
    uint32_t row = 0, token = 0;
  };
  // Runs forward for samples, on the last stage, in place of Evaluate. Does not read
  // `input.targets`. Returns the logits of the token that follows each of `places`: fp32,
  // StageOptions::vocabulary numbers for each place, in host memory. The default: kUnimplemented.
  virtual StatusOr<std::vector<float>> EvaluateLogits(Slice slice, const Input& input,
                                                      std::span<const Place> places);

  // With train.dpo, on the last stage: returns the sums over the pairs that Forward and Evaluate
  // have computed since the last call.
  virtual PreferenceSums TakePreferences() { return {}; }

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
  // Returns all trained parameters, in the order of StageOptions::parameters(), valid until
  // EndSharedStep or SkipStep. The spans refer to copies in a group, or if `memory` is kHost and
  // the stage computes on a GPU; else to the stage's own tensors. A group returns whole parameters.
  // `memory`: kDevice only if shares_on_device().
  virtual StatusOr<std::vector<SharedParameter>> SharedParameters(SharedIn memory);
  virtual bool shares_on_device() const { return false; }
  // Call it right before the last Backward of a step. During this Backward, the stage calls
  // `final(k)` on the calling thread when some gradients are final: those of the head and of all
  // blocks from k on, where k = 0 is this stage's first block. k decreases and is never 0; when
  // Backward returns, all gradients are final. Returns false if the stage will not call `final`.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): overriders keep it
  virtual bool TellWhatIsFinal(std::function<void(uint32_t)> /*final*/) { return false; }
  // Ends the step: takes the values that the caller wrote to SharedParameters, and clears the
  // gradients. kFailedPrecondition: a step in a wrong order.
  virtual Status EndSharedStep(Step step);
  // Between two steps, takes the values that the caller wrote to SharedParameters. For replicas
  // that train apart: their stages have optimizers of their own, and replicas merge parameters only
  // once in many steps.
  virtual Status TakeSharedValues();

  // --- For consecutive steps that overlap. The next step then begins with older parameters. So a
  // stage has a twin, and steps alternate between stage and twin.
  //
  // Makes the twin: a second stage with the same options and parameters. The twin has no optimizer
  // until its first TakeTurnFrom.
  virtual StatusOr<std::unique_ptr<Stage>> MakeTwin() const;
  // Takes the newer parameters, the step count and the optimizer from `twin`, which keeps its
  // parameters. Call it when all of this stage's step is done except the update.
  virtual Status TakeTurnFrom(Stage* twin);

  // Returns copies of the parameters and the optimizer state; with shares_step, only the
  // parameters.
  virtual StatusOr<StageSnapshot> Snapshot() const = 0;
  // Returns a digest of the parameters and the optimizer state, of any 64 bits. Equal bits have
  // equal digests on devices of one kind; another digest means that at least one bit is another.
  // The default: of a snapshot.
  virtual StatusOr<uint64_t> StateDigest() const;
  // Restores the parameters, the optimizer state and the step count from `snapshot`. Ignores arrays
  // that this stage does not have, so a checkpoint of a larger stage serves too.
  // kFailedPrecondition: an array is missing or has another shape, or the snapshot is of another
  // optimizer; the message names the array.
  virtual Status Restore(const StageSnapshot& snapshot) = 0;

  // Sets the parameters that published models have to values from `read`, one parameter at a time.
  // LoRA's adapters stay random, except with StageOptions::loads_adapters. A group calls `read` on
  // its own threads, one call at a time. With StageOptions::loads, call Load once, before any other
  // method. If it fails, discard the stage.
  virtual Status Load(const ReadParameter& read) = 0;

  // Drops the microbatches and gradients of an unfinished step. Keeps parameters and optimizer
  // state. Fails if a group has ended.
  virtual Status DropStep() = 0;
  // Number of steps taken, with the skipped ones.
  virtual uint64_t steps() const = 0;

  // The matrix that serves as embedding and as head, if another stage holds a copy of it. This
  // stage owns the result. Null: no other stage holds a copy.
  virtual TiedMatrix* tied_matrix() { return nullptr; }

  // For each block with experts, the number of tokens of each expert in the last step that
  // updated parameters; empty if the model has no experts.
  virtual std::vector<std::vector<int64_t>> TokensOfExperts() const { return {}; }

  // Returns the use of collectives since the stage was made; empty with one rank.
  virtual CollectiveUse collectives() const { return {}; }

  // Number of trained parameters, counted in elements.
  virtual uint64_t parameter_count() const = 0;
  // Most bytes of GPU memory that LibTorch held since the stage was made; 0 on the CPU. In a group:
  // of the rank with the most.
  virtual uint64_t peak_memory_bytes() const { return 0; }
  // Bytes of the device's memory that are held now. On a GPU: all memory that LibTorch has,
  // including that of CUDA graphs; in a group, of the rank with the most. On the CPU: parameters,
  // optimizer state and existing gradients, of all ranks. 0 in a replay.
  virtual uint64_t memory_bytes() const { return 0; }
};

// Makes a stage, as Stage::Create or MakeGroupStage does.
using MakeStage = std::function<StatusOr<std::unique_ptr<Stage>>(const StageOptions& options)>;

// Times of forward and backward of one microbatch in one part of the model.
struct MeasuredPass {
  double forward = 0, backward = 0;  // seconds, with the time inside collectives
  CollectiveBytes sent;              // by all ranks
  // Seconds inside collectives, in forward and backward; nullopt as in CollectiveUse::seconds.
  std::optional<double> collective_seconds;
};
// Times of the model's layers on this machine: lower quartiles, after a warm-up. A group is timed
// as a whole.
struct MeasuredLayerTimes {
  MeasuredPass embedding, block, head;  // `block`: one block
  // The exchanges that a group makes at the two ends of a stage, if each rank holds only a part of
  // the hidden state. `embedding` and `head` contain these exchanges; `block` does not. nullopt:
  // there are no such exchanges.
  std::optional<MeasuredPass> ends;
  double optimizer_seconds_per_parameter = 0;
  std::string forward_collective, backward_collective;  // as in CollectiveUse
};
// Measures on the calling thread for about a second, on a GPU for about two, because its clocks
// must rise first. Passes that are slower than this budget run at least twice. `make_stage` must
// make groups if options.ranks is not empty. Errors: those of `make_stage` and of the Stage.
StatusOr<MeasuredLayerTimes> MeasureLayerTimes(const StageOptions& options,
                                               const MakeStage& make_stage = Stage::Create);

// Returns the learning rate of `step`, counted from 1: a linear warm-up, then the run file's
// schedule (LrScheduleKind). Constant after the last step.
double LearningRate(const TrainSpec& train, Step step);
// Returns the factor that clips gradients: min(1, clip_norm / (norm + 1e-6)), where norm is the
// square root of `squared_norm`. NaN if the norm is NaN. 1 if clip_norm is 0: no clipping.
double ClipScale(double clip_norm, double squared_norm);

}  // namespace longhaul::worker
