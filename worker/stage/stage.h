// One pipeline stage of a transformer: parameters, forward, backward, optimizer. The executor
// (worker/pipeline) drives it. LibTorch is hidden behind this interface.
//
// The model: embedding on the first stage, `layers` blocks with causal attention, and norm, head
// and mean cross-entropy on the last. A single stage is the whole model. Families: gpt.h, llama.h,
// moe.h.
//
// Parameters are initialised by Philox keyed by (seed, parameter name), so the split of layers does
// not change them. Names are global: "h.3.attn.qkv.weight" in family gpt; in family llama the names
// of published checkpoints, "model.layers.3.self_attn.q_proj.weight".
//
// Threads: one thread at a time, except BoundaryTensor's memory, which lives as long as its owner.
// Errors: kInvalidArgument (shape), kResourceExhausted (memory), kInternal (LibTorch's exception).
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
  uint32_t vocabulary = 256;             // the tokenizer's size: all ids are smaller
  uint32_t first_layer = 0, layers = 0;  // this stage's blocks
  bool first = true, last = true;        // holds the embedding; holds norm, head and loss
  Recompute recompute = Recompute::kNone;
  uint32_t threads = 1;  // LibTorch's intra-op threads
  DeviceName device;     // a GPU needs LoadTorchCuda first (torch_cuda.h)
  // Devices of a tensor-parallel group by rank, the first equal to `device`; each rank has
  // `threads`. Empty: one rank. Stage::Create makes no groups (group/group_stage.h does).
  std::vector<DeviceName> ranks;
  GroupSpec group;      // how ranks share the stage; `tensor` is their number
  uint32_t slices = 1;  // sequence chunks of a microbatch; above 1 neither groups nor family moe
  bool graphs = true;   // on a GPU: passes run as CUDA graphs, one launch a pass; same results
  bool timing_only = false;  // parameters are arbitrary normal numbers, quickly made on the device
  bool masked_targets = false;    // some targets do not count (kNoTarget)
  bool masked_attention = false;  // tokens attend within their document; positions restart at 0
  bool loads = false;             // Load will set the parameters; until then they are zero
  // Data-parallel replicas step the parameters together (SharedParameters): the stage has no
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

// Activations of a slice or their gradient, (microbatch_size, context / slices, hidden): fp32 in
// the memory of the stage's device. In a partial group the shared channels come first, then each
// rank's own. Complete when a stage returns it: no kernel still writes it.
struct BoundaryTensor {
  codec::TensorView view;
  std::shared_ptr<const void> owner;  // keeps view.data valid
  // Token ids of the activations, sample by sample, if a codec predicts by tokens. Else null.
  std::shared_ptr<const std::vector<uint32_t>> token_ids = nullptr;
};

// Contents of a checkpoint, under global names: all trained parameters (with LoRA only the
// adapters). Copies, independent of the stage.
struct NamedArray {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;  // fp32, row-major
};
struct StageSnapshot {
  uint64_t step = 0;  // steps taken, skipped ones included
  std::vector<NamedArray> parameters;
  // The optimizer state: "<parameter>.exp_avg" and "<parameter>.exp_avg_sq" (AdamW), or
  // "<parameter>.momentum" (Muon). bf16 state is stored as fp32, which is exact.
  std::vector<NamedArray> moments;
  // Token tables of the lower boundary's codec, if it predicts (worker/pipeline/boundary_tables.h).
  // Stage::Snapshot leaves this empty.
  std::vector<NamedArray> tables = {};
};

// Parts of the squared gradient norm.
struct SquaredNorm {
  double sum = 0;  // this stage and all later ones
  double own = 0;  // this stage alone
};

// A parameter that data-parallel replicas step together, in memory of the host or of its device.
enum class SharedIn : uint8_t { kHost, kDevice };
struct SharedParameter {
  std::string name;
  std::vector<int64_t> shape;
  bool decays = false;
  uint32_t block_matrices = 0;  // as in worker/stage/model/layers.h
  // Another stage holds the same numbers, and counts them in the gradient norm.
  bool counted_elsewhere = false;
  std::span<const float> gradient;  // empty before the first Backward of a step
  std::span<float> value;
};

// A target that does not count in the loss.
inline constexpr int32_t kNoTarget = -1;

// Reads a parameter's values from elsewhere: `values` has parameter.shape.elements(), row-major.
using ReadParameter =
    std::function<Status(const model::PlacedParameter& parameter, std::span<float> values)>;

// What the ranks of a stage have sent each other since the stage was made.
struct CollectiveUse {
  std::string forward, backward;  // how hidden states and gradients are exchanged, for people
  CollectiveBytes sent;           // by all ranks, as compressed
  // Time inside calls, waiting for other ranks included; mean over ranks. nullopt: unknown, as on a
  // GPU, where calls are queued.
  std::optional<double> seconds;
};

class Stage {
 public:
  // Creates a stage of one rank. `options.threads` applies to this stage's calls alone; LibTorch's
  // inter-op threads are per process.
  static StatusOr<std::unique_ptr<Stage>> Create(const StageOptions& options);
  virtual ~Stage() = default;

  // Records CUDA graphs for `in_flight` microbatches now, so that none is recorded during a step.
  // Optional: without it graphs are recorded when first needed.
  virtual Status PreparePasses(uint32_t in_flight) {
    static_cast<void>(in_flight);
    return absl::OkStatus();
  }

  // --- One slice of a microbatch. Tokens attend to earlier slices, whose keys and values the stage
  // keeps, so the slices of a microbatch come in SliceOrder.
  //
  // Runs forward. The first stage reads `tokens`, the others `activation` (any dtype; copied).
  // Returns the output; the last stage computes the loss instead, keeps it for Backward, and
  // returns nullopt.
  struct Input {
    // Ids of the whole microbatch: microbatch_size x context, row-major.
    std::span<const int32_t> tokens;
    codec::TensorView activation;      // this slice's
    std::span<const int32_t> targets;  // last stage; kNoTarget with masked_targets
    // With masked_attention, on every stage: each token's document number in its row, from 0,
    // ascending.
    std::span<const int32_t> documents;
    // With masked_targets: divisor of the summed loss of targets that count, chosen so that the
    // mean over a step's microbatches is the mean over its targets.
    double counted = 0;
  };
  virtual StatusOr<std::optional<BoundaryTensor>> Forward(Slice slice, const Input& input) = 0;
  // Last stage, after Forward: the slice's share of the microbatch's mean cross-entropy, in nats a
  // token. The slices' shares add up to the mean.
  virtual StatusOr<double> Loss(Slice slice) const = 0;
  // Adds the slice's gradients, scaled by 1 / microbatches, to the accumulated ones and frees its
  // activations. Called in SliceOrder, after all slices of the microbatch went forward. Takes the
  // gradient of the output (except on the last stage) and returns the gradient of the input (except
  // on the first).
  virtual StatusOr<std::optional<BoundaryTensor>> Backward(
      Slice slice, const codec::TensorView& output_gradient) = 0;

  // Runs forward for validation: keeps nothing for backward. Last stage: sets *loss as Loss does.
  virtual StatusOr<std::optional<BoundaryTensor>> Evaluate(Slice slice, const Input& input,
                                                           double* loss) = 0;

  // --- Once a step, after the last Backward.
  //
  // Adds this stage's squared gradients to `sum`: from the model's last parameter to its first,
  // each summed in double in a fixed order. Passed on from the last stage (sum = 0) to the first,
  // the sum becomes the global squared norm, whatever the split.
  virtual StatusOr<SquaredNorm> AddSquaredGradientNorm(double sum) const = 0;
  // Steps the run file's optimizer (AdamW, Muon), with decoupled weight decay on matrices only.
  // Multiplies gradients by `gradient_scale` (clipping) first, then clears them. `step` counts from
  // 1.
  virtual Status OptimizerStep(Step step, double learning_rate, double gradient_scale) = 0;
  // Replaces OptimizerStep for a skipped step: clears gradients and counts the step. Parameters and
  // optimizer state keep their bits.
  virtual Status SkipStep(Step step) = 0;

  // --- With StageOptions::shares_step: data-parallel replicas step together, instead of
  // OptimizerStep.
  //
  // Returns all trained parameters in the descriptor's order, valid until EndSharedStep or
  // SkipStep. The memory is the host's or, with shares_on_device, the device's. Host memory of a
  // stage on a GPU has copies. In a group the parameters are whole, and copies.
  virtual StatusOr<std::vector<SharedParameter>> SharedParameters(SharedIn memory);
  virtual bool shares_on_device() const { return false; }
  // Call it before the last Backward of a step. While that Backward runs, `final(k)` tells that the
  // gradients of the head and of blocks k and later (counted from this stage's first) are final.
  // `final` is called on the calling thread, with decreasing k, never 0: all gradients are final
  // when Backward returns. Returns false if `final` will not be called, because backward runs as
  // one graph or because gradients are only allocated in it.
  virtual bool TellWhatIsFinal(std::function<void(uint32_t)> final) {
    static_cast<void>(final);
    return false;
  }
  // Takes the values that the caller wrote to SharedParameters, and clears the gradients.
  virtual Status EndSharedStep(Step step);
  // Takes the values that the caller wrote to SharedParameters between two steps. For stages with
  // an optimizer of their own.
  virtual Status TakeSharedValues();

  // --- When consecutive steps overlap. Passes of the next step compute with other parameters, so a
  // stage has a twin, and steps alternate between the two.
  //
  // Makes a second stage with the same options and parameters. It has no optimizer until its first
  // turn.
  virtual StatusOr<std::unique_ptr<Stage>> MakeTwin() const;
  // Takes the newer parameters, the step count and the optimizer from `twin`. Call it when only the
  // update of this stage's step is left to do. The twin keeps its parameters.
  virtual Status TakeTurnFrom(Stage* twin);

  // Copies parameters and optimizer state; returns when all is copied. Leaves out optimizer state
  // if replicas step it.
  virtual StatusOr<StageSnapshot> Snapshot() const = 0;
  // Restores everything that this stage has from `snapshot`. kFailedPrecondition names the first
  // parameter that is missing or has another shape, or the optimizer if it is of another kind.
  // Other names are ignored (a checkpoint of a larger stage).
  virtual Status Restore(const StageSnapshot& snapshot) = 0;

  // Sets all parameters except LoRA's adapters, which stay random, one parameter at a time. With
  // StageOptions::loads: once, before any other call. If it fails, discard the stage.
  virtual Status Load(const ReadParameter& read) = 0;

  // Drops the unfinished step: its microbatches and gradients. Keeps parameters and optimizer
  // state.
  virtual Status DropStep() = 0;
  // Steps taken, skipped ones included.
  virtual uint64_t steps() const = 0;

  // The matrix that another stage also holds (tied embedding); owned by this stage. Null: none.
  virtual TiedMatrix* tied_matrix() { return nullptr; }

  // For each block with experts: tokens of each expert in the last step. Empty: the model has none.
  virtual std::vector<std::vector<int64_t>> TokensOfExperts() const { return {}; }

  // Empty if the stage has one rank.
  virtual CollectiveUse collectives() const { return {}; }

  // Number of trained parameters, as in a snapshot.
  virtual uint64_t parameter_count() const = 0;
  // Peak GPU memory of LibTorch since the stage was made; 0 if it is not counted.
  virtual uint64_t peak_memory_bytes() const { return 0; }
  // Device memory held between steps. On a GPU: all memory that LibTorch took, CUDA graphs
  // included. On the CPU: parameters, optimizer state, and gradients if they stay.
  virtual uint64_t memory_bytes() const { return 0; }
};

using MakeStage = std::function<StatusOr<std::unique_ptr<Stage>>(const StageOptions& options)>;

// Times of one microbatch through a part of the model.
struct MeasuredPass {
  double forward = 0, backward = 0;  // seconds, time inside collectives included
  CollectiveBytes sent;              // by all ranks
  std::optional<double> collective_seconds;
};
// Times of the model's layers on this machine: lower quartiles after a warm-up, in about one
// second; on a GPU two, the first of which raises its clocks. A group's times cover all its ranks:
// `make_stage` makes groups if options.ranks is not empty.
struct MeasuredLayerTimes {
  MeasuredPass embedding, block, head;
  // Set for a stage without layers if each rank has a part of the hidden state: the exchanges
  // before and after any run of layers. Contained in `embedding` and in `head`, not in `block`.
  std::optional<MeasuredPass> ends;
  double optimizer_seconds_per_parameter = 0;
  std::string forward_collective, backward_collective;  // as CollectiveUse
};
StatusOr<MeasuredLayerTimes> MeasureLayerTimes(const StageOptions& options,
                                               const MakeStage& make_stage = Stage::Create);

// Learning rate at `step` (from 1): linear warm-up, then the run file's schedule (LrScheduleKind).
// Constant after the last step.
double LearningRate(const TrainSpec& train, Step step);
// min(1, clip_norm / (norm + 1e-6)); 1 if clip_norm is 0. A NaN norm gives NaN.
double ClipScale(double clip_norm, double squared_norm);

}  // namespace longhaul::worker
