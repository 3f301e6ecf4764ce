// The run file: what a user wants trained, and how. Parsed and checked by the same code in the CLI
// (before it dials) and in the coordinator. docs/design/formats.md has the keys.
//
// Thread-safe (plain data and pure functions). Errors: ParseRunSpec reports *all* errors of a file,
// one per line as "file:line:column: what was expected, what came, what to do".
#ifndef LONGHAUL_RUN_FILE_RUN_SPEC_H_
#define LONGHAUL_RUN_FILE_RUN_SPEC_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "run/file/topology.h"
#include "run/kinds/schedules.h"
#include "run/kinds/transports.h"
#include "run/model/model_spec.h"
#include "run/replicas/options.h"

namespace longhaul {

// What a run of several replicas does about a worker that is lost and has no replacement.
enum class LostReplica : uint8_t {
  kExact,     // it waits for one; the losses are those of an unbroken run, bit for bit
  kContinue,  // it goes on with the replicas that are whole, and takes others in when it can
};

// Of products: "fp32", "bf16", "auto".
enum class ComputeDtype : uint8_t {
  kFp32,
  kBf16,
  kAuto,  // bf16 where all workers of the run compute on GPUs, else fp32; a plan says which
};
// "auto": where a worker of the run listens on an address that is not private.
enum class EncryptKind : uint8_t { kAuto, kRequired, kOff };  // "auto" "required" "off"
// When gradients may leave a stage: "auto" "activations-first" "as-ready". An interface that is
// busy both with activations going down and with gradients going up shares itself between
// connections as TCP happens to: seconds of bad luck at 10 Mbit/s, and a pipeline that starves.
enum class SendOrder : uint8_t {
  kAuto,  // the planner chooses by how many microbatches activations go ahead of gradients
  // Gradients wait until all activations of the step but one have come in, so that every interface
  // does one thing at a time. Near the lower bound where the links are alike (backwards are
  // computed without waiting, and nothing is lost by sending them late); bad where latency is long
  // beside a transfer, or the first stage's link is slow. Needs a depth of all microbatches in all
  // stages.
  kActivationsFirst,
  kAsReady,
};
// Which workers a run takes, and in which order: "auto", "names".
enum class PlacementKind : uint8_t {
  kAuto,   // of all that are free those, and as, the plan predicts the shortest step
  kNames,  // the first by name, in the order of their names
};
// What a stage does without for the sake of memory, and computes again in backward: "none",
// "blocks", "stage". Results are the same to the bit.
enum class Recompute : uint8_t {
  kNone,
  kBlocks,  // a block keeps its input alone; activations of one block at a time
  kStage,   // the stage keeps its input alone; then activations of all of its blocks
};
enum class OptimizerKind : uint8_t {
  kAdamW,  // "adamw"
  kMuon,   // "muon": for the matrices of blocks; AdamW with the same rate for all else
};
enum class MomentDtype : uint8_t { kFp32, kBf16 };  // "fp32", "bf16"
// Of the learning rate: "constant", "cosine", "linear", "wsd". All begin with the warm-up.
enum class LrScheduleKind : uint8_t {
  kConstant,
  kCosine,  // half a cosine, from lr to final_ratio * lr at the last step
  kLinear,  // likewise, on a line
  kWsd,     // warm-up, stable, decay: lr, then on a line to final_ratio * lr over the last steps
};

// What becomes of a step whose loss or gradient norm is not finite: "stop", "skip".
enum class OnNonfinite : uint8_t {
  kStop,  // the run fails
  kSkip,  // no stage updates anything in this step; kMostSkippedInARow
};
// Of steps that are skipped: the run fails at the next one.
inline constexpr uint32_t kMostSkippedInARow = 10;

// Which validations are done a second time with boundaries in fp32: "always" "end" "never".
enum class CleanValidation : uint8_t {
  kAlways,
  kEnd,  // the one after the last step
  kNever,
};

// What compresses the sums of a group: "none", "taco", "zip", "auto".
enum class GroupCollective : uint8_t {
  kNone,
  kTaco,  // 8-bit codes
  kZip,   // without loss, bf16 alone
  kAuto,  // kNone or kZip, whichever a worker finds to be faster
};

std::string_view ToString(ComputeDtype dtype);
std::string_view ToString(EncryptKind kind);
std::string_view ToString(SendOrder order);
std::string_view ToString(PlacementKind kind);
std::string_view ToString(LostReplica what);
std::string_view ToString(Recompute what);
std::string_view ToString(OptimizerKind kind);
std::string_view ToString(MomentDtype dtype);
std::string_view ToString(LrScheduleKind kind);
std::string_view ToString(OnNonfinite what);
std::string_view ToString(CleanValidation clean);
std::string_view ToString(GroupCollective what);

// The values that parameters begin with, where these are not random.
struct WeightsSpec {
  // "model.from": a folder as Hugging Face's libraries write it (run/published/weights.h). It fills
  // in what the file does not say of the model.
  std::string from;
  bool upload = true;  // "model.upload": to workers that do not have the folder
  // "model.tied: split": embedding and head both begin with the one matrix of a tied model, and are
  // then trained apart.
  bool split = false;
  // "model.weights": the content address of the list of its tensors, which the CLI makes.
  std::string sha256;
  friend bool operator==(const WeightsSpec&, const WeightsSpec&) = default;
};

// A data set (docs/design/data_sets.md) of those that a run reads.
struct DataSource {
  std::string from;   // a folder, relative to the run file's
  double weight = 1;  // of its sequences among all
  friend bool operator==(const DataSource&, const DataSource&) = default;
};

struct DataSpec {
  // One of the two is required.
  std::vector<std::string> text;  // globs, relative to the run file's folder
  std::vector<DataSource> sets;
  std::string tokenizer = "bytes";  // of `text`
  uint64_t seed = 1;
  // Of sets: to workers that do not have the folders; what a worker that reads them keeps in
  // memory.
  bool upload = true;
  uint64_t memory_bytes = uint64_t{256} << 20;
  // Of sets, "mask: document": attention, positions and loss stay within documents, which end with
  // the end token; else a window is one document, whatever it has.
  bool mask_documents = false;
  // Of sets, what the CLI fills in: the content address of the list of their files, how many tokens
  // there are, and whether the loss of some does not count.
  std::string list_sha256;
  uint32_t vocabulary = 0;
  bool masks = false;
  friend bool operator==(const DataSpec&, const DataSpec&) = default;
};

struct ValidationSpec {
  double share = 0.05;    // of the text's end
  uint32_t every = 50;    // steps, and after the last one; 0 = never
  uint32_t samples = 64;  // sequences
  // Activations go through the links' codecs, and in a clean validation as fp32: that loss is the
  // exported model's. Where no link compresses activations every validation is both.
  CleanValidation clean = CleanValidation::kEnd;
  bool at_start = false;  // before the first step, too; with model.from the default is true
  friend bool operator==(const ValidationSpec&, const ValidationSpec&) = default;
};

struct OptimizerSpec {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 3e-4;
  double beta1 = 0.9, beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // on matrices only
  double clip_norm = 1.0;     // global; 0 = no clipping
  double momentum = 0.95;     // Muon's
  // What is remembered between steps is kept so. Arithmetic is fp32, and checkpoints hold fp32.
  MomentDtype moments = MomentDtype::kFp32;
  friend bool operator==(const OptimizerSpec&, const OptimizerSpec&) = default;
};

struct LrScheduleSpec {
  LrScheduleKind kind = LrScheduleKind::kCosine;
  uint64_t warmup = 0;       // steps
  double final_ratio = 0.1;  // of lr, at the last step
  double decay = 0.2;        // wsd: share of all steps
  // wsd: the steps of the decay, the last ones of `steps`.
  uint64_t DecaySteps(uint64_t steps) const;
  friend bool operator==(const LrScheduleSpec&, const LrScheduleSpec&) = default;
};

struct TrainSpec {
  uint64_t steps = 0;            // required; 0, with model.from alone: the run only validates
  uint32_t microbatches = 0;     // required; per step, of each replica
  uint32_t microbatch_size = 1;  // sequences
  ComputeDtype dtype = ComputeDtype::kFp32;  // a run file that says nothing: auto
  uint64_t seed = 1;
  // On GPUs only algorithms that give the same bits each time, which costs some speed; a CPU has no
  // others.
  bool deterministic = false;
  OptimizerSpec optimizer;
  LrScheduleSpec schedule;
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  friend bool operator==(const TrainSpec&, const TrainSpec&) = default;
};

struct PipelineSpec {
  std::optional<uint32_t> stages;  // nullopt = "auto": as many as connected workers, at most layers
  ScheduleKind schedule = ScheduleKind::kLinkAware;
  SendOrder send_order = SendOrder::kAuto;
  Recompute recompute = Recompute::kNone;
  uint32_t threads_per_stage = 1;
  std::optional<uint32_t>
      depth;  // microbatches in flight of every stage; nullopt = "auto": the plan's
  // Equally many tokens each, in which microbatches go through the pipeline; nullopt = "auto": the
  // first plan chooses their number.
  std::optional<uint32_t> slices = 1;
  uint32_t SlicesNow() const { return slices.value_or(1); }  // until it is chosen
  PlacementKind placement = PlacementKind::kAuto;
  friend bool operator==(const PipelineSpec&, const PipelineSpec&) = default;
};

// Copies of the pipeline that train together, each on microbatches of its own: keys of the section
// "pipeline".
struct ReplicasSpec {
  uint32_t count = 1;  // "replicas"
  // "replicas: auto": the first plan chooses the count, which is 1 until then. Until then
  // train.microbatches are those of all replicas together.
  bool count_auto = false;
  replicas::GradientOptions gradients;                                  // "gradients"
  replicas::ParameterForm parameters = replicas::ParameterForm::kFp32;  // "parameters"
  // Replicas have parameters of their own between exchanges: local-sgd.
  bool trains_apart() const { return gradients.form == replicas::GradientForm::kLocalSgd; }
  // Steps from one exchange to the next.
  uint32_t steps_apart() const { return count > 1 && trains_apart() ? gradients.local.steps : 1; }
  friend bool operator==(const ReplicasSpec&, const ReplicasSpec&) = default;
};

// How many ranks of a worker share a stage: section "group". Each has a device of the worker.
struct GroupSpec {
  uint32_t tensor = 1;  // of tensor parallelism: they share the stage's matrices
  uint32_t expert = 1;  // parts of each block's experts; tensor / expert ranks have each part
  // "tensor: auto", "expert: auto": the first plan chooses that number, which is 1 until then.
  bool tensor_auto = false, expert_auto = false;
  bool sequence = false;  // between split matrices each rank has its part of the tokens
  // Of the hidden channels, those that ranks sum and have alike; the others are each rank's own
  // (CAAT-Net).
  double shared_channels = 1;
  GroupCollective forward = GroupCollective::kNone, backward = GroupCollective::kNone;

  bool is_auto() const { return tensor_auto || expert_auto; }
  // Once the numbers are chosen: what is "auto" takes them, and what is not stays. One rank
  // exchanges nothing, however others would.
  GroupSpec Settled(uint32_t ranks, uint32_t parts) const;
  friend bool operator==(const GroupSpec&, const GroupSpec&) = default;
};

// Instead of a codec: the plan chooses one for each link, within links.error.
inline constexpr std::string_view kAutoCodec = "auto";

struct CodecPair {
  std::string forward = "tah";
  std::string backward = "fixed:bits=4,rounding=stochastic";
  bool is_auto() const { return forward == kAutoCodec || backward == kAutoCodec; }
  friend bool operator==(const CodecPair&, const CodecPair&) = default;
};

// "tah" of "tah:p=0.8", "predict" of "predict:pairs=0/gauss".
constexpr std::string_view CodecFamily(std::string_view codec) {
  return codec.substr(0, codec.find_first_of(":/"));
}
// Whether it knows activations by their tokens.
constexpr bool PredictsByTokens(std::string_view codec) {
  return CodecFamily(codec) == "predict";
}
// Whether it codes what a sample sends by what the same sample sent before.
constexpr bool RemembersSamples(std::string_view codec) {
  return CodecFamily(codec) == "aqsgd";
}

// Four bits, for activations and for gradients, are within this. Three are not.
inline constexpr double kDefaultCodecError = 0.16;

// What differs at one worker.
struct LinkException {
  CodecPair codecs;                        // of what it sends
  std::optional<TransportKind> transport;  // of all its links; nullopt: the run's
  friend bool operator==(const LinkException&, const LinkException&) = default;
};

struct LinksSpec {
  CodecPair codecs;
  std::vector<std::pair<std::string, LinkException>> by_worker;  // by its name
  // Of disk that codecs with message buffers (aqsgd) may take on one worker.
  uint64_t cache_limit_bytes = uint64_t{8} << 30;  // "cache_limit: 8GiB"
  // Neighbours measure the links between them before each plan (some seconds of traffic). Without,
  // a plan knows what earlier ones measured.
  bool measure = true;
  EncryptKind encrypt = EncryptKind::kAuto;  // of all links between the run's workers
  // Of codecs that a plan may choose where one is auto, the largest error (codec/ladder.h).
  double error = kDefaultCodecError;
  // What the first plan chose where one is auto: of each replica, for each boundary. Empty: nothing
  // yet. Plans after that keep them while the number of stages stays.
  std::vector<std::vector<CodecPair>> chosen;

  bool HasAutoCodecs() const;
  // Of a replica with so many boundaries; one that came later has those of the first. Null: none
  // were chosen for that many.
  const std::vector<CodecPair>* ChosenOf(uint32_t replica, size_t boundaries) const;
  friend bool operator==(const LinksSpec&, const LinksSpec&) = default;
};

struct RecoverySpec {
  // How often in a row the run may begin again after a loss without finishing a new step. 0: never.
  uint32_t attempts = 5;
  // Steps between copies of every stage's state that go to another worker. 0: checkpoints alone;
  // nullopt: as often as costs little (coordinator/planner/copy_interval.h).
  std::optional<uint32_t> every = 0;
  // Further workers that are reserved for the run: they hold its copies, and take the place of a
  // worker that is lost.
  uint32_t spares = 0;
  LostReplica replicas = LostReplica::kExact;
  friend bool operator==(const RecoverySpec&, const RecoverySpec&) = default;
};

struct CheckpointSpec {
  uint64_t every = 50;  // steps; 0 = only at the end and at `stop`
  uint32_t keep = 2;
  // The coordinator keeps a copy of every shard, for when a worker is gone. Sent behind the
  // training, over the worker's control connection.
  bool keep_copy = false;
  // False: a run that is only measured writes none after its last step.
  bool at_end = true;
  friend bool operator==(const CheckpointSpec&, const CheckpointSpec&) = default;
};

// A replay: the real coordinator, schedule, transport and (where asked for) codecs, with compute
// replaced by sleeping for times that were measured elsewhere. Nothing is learned: a replay has no
// losses and its checkpoints hold no parameters.
struct ReplaySpec {
  // One encode and one decode of a boundary tensor, by a codec with whatever parameters.
  struct CodecTimes {
    std::string codec;  // "tah", "fixed"
    absl::Duration encode, decode;
    friend bool operator==(const CodecTimes&, const CodecTimes&) = default;
  };
  std::string source;  // required; what was measured, on which device: shown with every result
  // One microbatch; required for the blocks.
  absl::Duration embedding_forward, embedding_backward;
  absl::Duration block_forward, block_backward;
  absl::Duration head_forward, head_backward;
  absl::Duration optimizer;  // one step of the whole model's parameters on one such device
  // False ("codecs: measured"): every boundary resends one encoded blob, and encoding and decoding
  // sleep for `codec_times`. True ("codecs: real"): codecs run, on one tensor of noise.
  bool real_codecs = false;
  std::vector<CodecTimes> codec_times;
  uint64_t memory_bytes = 0;  // of such a device, for the plan; 0 = no limit
  friend bool operator==(const ReplaySpec&, const ReplaySpec&) = default;

  // Null: none was measured. `codec` may have parameters.
  const CodecTimes* TimesOf(std::string_view codec) const;
};

struct RunSpec {
  std::string name;  // required; [a-z0-9-], 1..40 characters
  ModelSpec model;
  WeightsSpec weights;
  DataSpec data;
  ValidationSpec validation;
  TrainSpec train;
  PipelineSpec pipeline;
  ReplicasSpec replicas;
  GroupSpec group;
  TransportKind transport = TransportKind::kUcx;  // of the links without an exception
  LinksSpec links;
  CheckpointSpec checkpoint;
  RecoverySpec recovery;
  std::optional<ReplaySpec> replay;
  std::optional<TopologySpec> topology;  // what a local cluster emulates for this run
  // How long the run does without a sign of life before it takes somebody for gone: a neighbour
  // over a link; a worker at the coordinator, whose session then ends; and a worker without a
  // session, which trains on meanwhile.
  absl::Duration peer_timeout = absl::Seconds(10);
  absl::Duration session_timeout = absl::Seconds(10);
  absl::Duration reattach_timeout = absl::Seconds(60);

  // The same run with so many replicas. One alone has no forms of gradients and parameters.
  RunSpec WithReplicas(uint32_t count) const;
  // The number of replicas that a plan chose where the run file says auto. It divides
  // train.microbatches, of which each replica gets its part.
  RunSpec WithChosenReplicas(uint32_t count) const;
  // Of all replicas.
  uint64_t MicrobatchesPerStep() const { return uint64_t{replicas.count} * train.microbatches; }
  uint64_t TokensPerStep() const { return replicas.count * TokensOfReplica(); }
  // Of one replica, in a step.
  uint64_t TokensOfReplica() const {
    return uint64_t{train.microbatches} * train.microbatch_size * model.context;
  }
  friend bool operator==(const RunSpec&, const RunSpec&) = default;
};

// Says whether a codec string is one ("none", "tah:p=0.8"); the codec registry's ParseCodec fits.
// base knows no codec, so the caller hands this in.
using CodecCheck = std::function<Status(std::string_view codec)>;

// Finds the texts that a run's globs name, or its data sets, and says how many bytes they have, or
// what is wrong, a line for each problem.
using FindTexts = std::function<StatusOr<uint64_t>(const RunSpec& spec)>;

// Reads what `model.from` names, or says what is wrong with it, a line for each problem.
struct FoundModel {
  ModelSpec model;  // complete; `tied` as published
  std::optional<uint32_t> longest_context;
};
using FindModel = std::function<StatusOr<FoundModel>(const std::string& from)>;

// Parses `yaml` (the text of the file called `file_name` in messages) and applies `overrides`
// ("train.steps=20", the CLI's --set) on top. All errors at once in one kInvalidArgument message, a
// line each. Without `find_texts` nobody looks at the texts; without `find_model` the file itself
// has to say what `model.from` would.
StatusOr<RunSpec> ParseRunSpec(std::string_view yaml, std::string_view file_name,
                               const std::vector<std::string>& overrides,
                               const CodecCheck& check_codec, const FindTexts& find_texts = {},
                               const FindModel& find_model = {});

// Overrides that say all of the spec's model and data, for those who cannot see the folders that
// they came from.
std::string ModelOverride(const RunSpec& spec);
std::string DataOverride(const RunSpec& spec);

// The run file with every default written out, but for keys that neighbours of an older version do
// not know (validation.clean and .at_start, train.dtype where it is auto, train.deterministic,
// train.on_nonfinite, train.lora, recovery.replicas where it is exact, train.optimizer.momentum and
// .moments, train.schedule.decay, pipeline.placement where it is auto, group of more than one rank,
// checkpoint.at_end); ParseRunSpec of it gives an equal spec. `longhaul plan --show-config` prints
// it and the control plane carries it.
std::string ToYaml(const RunSpec& spec);

// The files that the spec's globs match, sorted and without doubles, each glob relative to
// `folder`. kInvalidArgument naming every glob that matches nothing and every file that cannot be
// read.
StatusOr<std::vector<std::string>> ExpandDataFiles(const RunSpec& spec, const std::string& folder);

// Checks that need the size of the data: enough tokens for a training window of `context` + 1 and,
// where validation is on, for one validation window. All errors at once.
Status CheckDataSize(const RunSpec& spec, uint64_t tokens);

}  // namespace longhaul

#endif  // LONGHAUL_RUN_FILE_RUN_SPEC_H_
