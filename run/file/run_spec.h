// The run file: what a user wants to train, and how. The CLI (before it connects) and the
// coordinator parse and check the file with the same code. The keys are rows of keys.h.
//
// Thread-safe (plain data and pure functions). Errors: ParseRunSpec reports *all* errors of a file,
// one per line as "file:line:column: what was expected, what came, what to do".
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "base/words.h"
#include "codec/spec.h"
#include "run/file/group_collective.h"
#include "run/file/topology.h"
#include "run/file/train_spec.h"
#include "run/file/verify_spec.h"
#include "run/kinds/link_pairs.h"
#include "run/kinds/schedules.h"
#include "run/kinds/transports.h"
#include "run/model/model_spec.h"
#include "run/replicas/options.h"

namespace longhaul {

// What a run with several replicas does if a lost worker is not replaced.
enum class LostReplica : uint8_t {
  kExact,     // waits for a replacement; losses are those of an unbroken run, bit for bit
  kContinue,  // goes on with the complete replicas; takes further ones in when workers come
};
constexpr std::string_view ToString(LostReplica what) {
  return WordOf(what, {"exact", "continue"});
}

// kAuto: links are encrypted if a worker of the run listens on a public address or a host name.
enum class EncryptKind : uint8_t { kAuto, kRequired, kOff };
constexpr std::string_view ToString(EncryptKind kind) {
  return WordOf(kind, {"auto", "required", "off"});
}

// When gradients may leave a stage. If activations (down) and gradients (up) are ready at the same
// time, TCP decides how an interface divides its rate between them. At 10 Mbit/s this can leave
// stages without work for seconds.
enum class SendOrder : uint8_t {
  kAuto,  // the planner chooses how many microbatches activations go ahead of gradients
  // Gradients wait until all activations of the step but one have arrived, so that every interface
  // does one thing at a time. If links are alike, the step is near its lower bound, because
  // backward never waits. This order is bad if latency is long compared with a transfer, or if the
  // first stage's link is slow. It needs all microbatches of a step in flight in every stage.
  kActivationsFirst,
  kAsReady,  // every tensor leaves as soon as it is ready
};
constexpr std::string_view ToString(SendOrder order) {
  return WordOf(order, {"auto", "activations-first", "as-ready"});
}

// Which workers a run takes, and in which order.
enum class PlacementKind : uint8_t {
  kAuto,   // the free workers, and their order, that make the predicted step shortest
  kNames,  // the first by name, in the order of their names
};
constexpr std::string_view ToString(PlacementKind kind) {
  return WordOf(kind, {"auto", "names"});
}

// The activations that a stage drops to save memory and computes again in backward. Results are the
// same to the bit.
enum class Recompute : uint8_t {
  kNone,
  kBlocks,  // a block keeps only its input; backward holds activations of one block
  kStage,   // the stage keeps only its input; backward holds activations of all blocks
};
constexpr std::string_view ToString(Recompute what) {
  return WordOf(what, {"none", "blocks", "stage"});
}

// Which validations are repeated with boundaries in fp32.
enum class CleanValidation : uint8_t {
  kAlways,
  kEnd,  // the one after the last step
  kNever,
};
constexpr std::string_view ToString(CleanValidation clean) {
  return WordOf(clean, {"always", "end", "never"});
}

// Published weights that training begins with, instead of random ones.
struct WeightsSpec {
  // "model.from": a folder as Hugging Face's libraries write it (run/published/weights.h). It fills
  // in keys of the model that the file leaves out.
  std::string from;
  // "train.lora.from": a folder with adapters of LoRA, as PEFT writes it
  // (run/published/adapters.h). Empty: adapters begin as new ones.
  std::string adapters;
  bool upload = true;  // "model.upload": workers that do not have the folders get the weights
  // "model.tied: split": embedding and head both begin with the one matrix of a tied model, and are
  // then trained apart.
  bool split = false;
  // "model.tied: auto": the run file does not say `tied`, and the published model's matrix is tied.
  // A plan is refused if its exchange would take much of a step (planner/tied_cost.h).
  bool tied_unsaid = false;
  // "model.weights": content address of the list of all tensors, of model and adapters, which the
  // CLI makes. Empty: none yet.
  std::string sha256;
  friend bool operator==(const WeightsSpec&, const WeightsSpec&) = default;
};

// A data set that a run reads (docs/design/data_sets.md).
struct DataSource {
  std::string from;   // a folder, relative to the run file's
  double weight = 1;  // relative share of its sequences
  friend bool operator==(const DataSource&, const DataSource&) = default;
};

struct DataSpec {
  // Either `text` or `sets` is given.
  std::vector<std::string> text;  // globs, relative to the run file's folder
  std::vector<DataSource> sets;
  std::string tokenizer = "bytes";  // of `text`
  uint64_t seed = 1;
  // For `sets`. upload: workers that do not have the folders get the files. memory_bytes: memory of
  // a worker for chunks that it has read.
  bool upload = true;
  uint64_t memory_bytes = uint64_t{256} << 20;
  // For `sets`, "mask: document": attention, positions and loss stay within documents, which end
  // with the end token. False: a window counts as one document.
  bool mask_documents = false;
  // The CLI fills these in for `sets`: content address of the list of files, size of the
  // vocabulary, and whether the loss of some tokens does not count.
  std::string list_sha256;
  uint32_t vocabulary = 0;
  bool masks = false;
  // The `from` of each of `sets`.
  std::vector<std::string> Folders() const {
    std::vector<std::string> folders;
    for (const DataSource& source : sets) folders.push_back(source.from);
    return folders;
  }
  friend bool operator==(const DataSpec&, const DataSpec&) = default;
};

struct ValidationSpec {
  double share = 0.05;    // of the text, at its end
  uint32_t every = 50;    // steps between two validations; one follows the last step; 0 = never
  uint32_t samples = 64;  // sequences
  // In a clean validation activations are sent as fp32, so its loss is that of the exported model.
  // Without codecs of activations every validation is clean.
  CleanValidation clean = CleanValidation::kEnd;
  bool at_start = false;  // also before the first step; default with model.from: true
  friend bool operator==(const ValidationSpec&, const ValidationSpec&) = default;
};

// Bounds of samples, in a run file and in a request (docs/design/limits.md).
inline constexpr uint32_t kMostSamplePrompts = 16, kMostSampleTokens = 256;
inline constexpr uint32_t kMostSampleStops = 16;
inline constexpr size_t kMostPromptBytes = 4096;  // of a text

// Texts that the run's own pipeline continues after some steps.
struct SamplesSpec {
  uint32_t every = 0;                // steps between two rounds; one follows the last step; 0: none
  std::vector<std::string> prompts;  // at most kMostSamplePrompts
  uint32_t tokens = 32;              // maximum number of new tokens, at most kMostSampleTokens
  double temperature = 0;            // 0: always the likeliest token
  double top_p = 1;
  uint64_t seed = 1;
  // The CLI fills these in where data.tokenizer does not apply: the prompts' tokens, the tokens
  // that end a text, and the content address of the table of the tokens' bytes
  // (run/tokens/pieces.h).
  std::vector<std::vector<uint32_t>> ids;
  std::vector<uint32_t> stop;
  std::string pieces_sha256;
  friend bool operator==(const SamplesSpec&, const SamplesSpec&) = default;
};

struct PipelineSpec {
  std::optional<uint32_t> stages;  // nullopt = "auto": as many as connected workers, at most layers
  ScheduleKind schedule = ScheduleKind::kLinkAware;
  SendOrder send_order = SendOrder::kAuto;
  Recompute recompute = Recompute::kNone;
  uint32_t threads_per_stage = 1;
  std::optional<uint32_t>
      depth;  // microbatches in flight of every stage; nullopt = "auto": the plan's
  // Sequence chunks of equal length in which a microbatch goes through the pipeline; nullopt =
  // "auto": the first plan chooses their number.
  std::optional<uint32_t> slices = 1;
  uint32_t SlicesNow() const { return slices.value_or(1); }  // before the choice: 1
  PlacementKind placement = PlacementKind::kAuto;
  friend bool operator==(const PipelineSpec&, const PipelineSpec&) = default;
};

// Data-parallel replicas of the pipeline, each with microbatches of its own: keys of the section
// "pipeline".
struct ReplicasSpec {
  uint32_t count = 1;  // "replicas"
  // "replicas: auto": the first plan chooses the count. Until then the count is 1, and
  // train.microbatches counts the microbatches of all replicas together.
  bool count_auto = false;
  replicas::GradientOptions gradients;                                  // "gradients"
  replicas::ParameterForm parameters = replicas::ParameterForm::kFp32;  // "parameters"
  // local-sgd: replicas have parameters of their own between exchanges.
  bool trains_apart() const { return gradients.form == replicas::GradientForm::kLocalSgd; }
  // Steps from one exchange to the next; 1 with one replica.
  uint32_t steps_apart() const { return count > 1 && trains_apart() ? gradients.local.steps : 1; }
  friend bool operator==(const ReplicasSpec&, const ReplicasSpec&) = default;
};

// The ranks of a worker that share a stage: section "group". Each rank has a device of the worker.
struct GroupSpec {
  uint32_t tensor = 1;  // ranks of tensor parallelism
  uint32_t expert = 1;  // parts of each block's experts; tensor / expert ranks hold each part
  // "tensor: auto", "expert: auto": the first plan chooses the number. Until then it is 1.
  bool tensor_auto = false, expert_auto = false;
  bool sequence = false;  // sequence parallelism between split matrices
  // Fraction of the hidden channels in which the ranks add up their partial results. In the other
  // channels each rank goes on with its own values (CAAT-Net).
  double shared_channels = 1;
  GroupCompression forward, backward;

  bool is_auto() const { return tensor_auto || expert_auto; }
  // The group with the chosen numbers in place of "auto". With one rank, all settings of the
  // exchange between ranks are at their initial values.
  GroupSpec Settled(uint32_t ranks, uint32_t parts) const;
  friend bool operator==(const GroupSpec&, const GroupSpec&) = default;
};

// Stands in place of a codec: the plan chooses a codec for each link, within links.error.
inline constexpr std::string_view kAutoCodec = "auto";

inline bool IsAuto(const CodecSpec& codec) {
  return ToString(codec) == kAutoCodec;
}

struct CodecPair {
  CodecSpec forward = CodecSpec(kDefaultPair.forward);
  CodecSpec backward = CodecSpec(kDefaultPair.backward);
  bool is_auto() const { return IsAuto(forward) || IsAuto(backward); }
  friend bool operator==(const CodecPair&, const CodecPair&) = default;
};

// Settings of one worker that differ from the run's.
struct LinkException {
  CodecPair codecs;                        // of what the worker sends
  std::optional<TransportKind> transport;  // nullopt: the run's
  friend bool operator==(const LinkException&, const LinkException&) = default;
};

struct LinksSpec {
  CodecPair codecs = {.forward = CodecSpec(kAutoCodec), .backward = CodecSpec(kAutoCodec)};
  std::vector<std::pair<std::string, LinkException>> by_worker;  // by worker name
  // Disk that codecs with message buffers (aqsgd) may take on one worker.
  uint64_t cache_limit_bytes = uint64_t{8} << 30;  // "cache_limit: 8GiB"
  // Neighbours measure the links between them before each plan (some seconds of traffic). False: a
  // plan uses earlier measurements.
  bool measure = true;
  EncryptKind encrypt = EncryptKind::kAuto;  // of all links between the run's workers
  // If a codec is auto: the largest error that a codec may have for a plan to choose it
  // (codec/ladder.h). nullopt: that of the pair `default`, for each direction.
  std::optional<double> error;
  // If a codec is auto: false keeps a plan from codecs that predict activations by their tokens.
  // Not a key of run files: a plan sets it where the tables of tokens do not fit in memory.
  bool predicts = true;
  // If a codec is auto: the codecs that the first plan chose, by replica and boundary. Empty: not
  // chosen yet. Later plans keep them while the number of stages stays the same.
  std::vector<std::vector<CodecPair>> chosen;

  bool HasAutoCodecs() const;
  // Returns the codecs chosen for a replica, by boundary. A replica added later has the codecs of
  // the first one. Null: none were chosen for this number of boundaries. Points into `chosen`.
  const std::vector<CodecPair>* ChosenOf(uint32_t replica, size_t boundaries) const;
  friend bool operator==(const LinksSpec&, const LinksSpec&) = default;
};

struct RecoverySpec {
  // After a worker is lost: the number of attempts in a row that may end without a new step. 0: the
  // run fails at the first loss.
  uint32_t attempts = 5;
  // Steps between copies of every stage's state that go to another worker. 0: checkpoints alone;
  // nullopt ("auto"): as often as possible while copies cost a step little
  // (planner/copy_interval.h).
  std::optional<uint32_t> every = 0;
  // "between-hosts", if `every` is 0: as auto if the run's workers are on several machines. False:
  // the run file says 0.
  bool every_between_hosts = true;
  // Further workers that are reserved for the run. They hold copies of its state, and take the
  // place of a lost worker.
  uint32_t spares = 0;
  LostReplica replicas = LostReplica::kExact;
  friend bool operator==(const RecoverySpec&, const RecoverySpec&) = default;
};

struct CheckpointSpec {
  uint64_t every = 50;  // steps; 0 = only at the end and at `stop`
  uint32_t keep = 2;    // number of checkpoints that stay, the newest
  // The coordinator keeps a copy of every shard, in case a worker is lost. Shards are sent during
  // training, over the worker's control connection.
  bool keep_copy = false;
  // A checkpoint follows the last step. False: for runs that are only measured.
  bool at_end = true;
  // A folder of an object store, "s3://bucket/prefix", to which workers copy whole checkpoints.
  // Empty: none.
  std::string to = {};
  friend bool operator==(const CheckpointSpec&, const CheckpointSpec&) = default;
};

// What the coordinator runs beside training: section "hooks".
struct HooksSpec {
  // Program and arguments, which the coordinator runs after each checkpoint (not after interim
  // ones) with the export of its parameters. Empty: nothing.
  std::vector<std::string> on_checkpoint;
  absl::Duration timeout = absl::Minutes(10);  // then the program and its children are killed
  // What is exported of a run with LoRA. True: the whole model with the adapters added. False: the
  // adapters alone.
  bool merged = false;
  friend bool operator==(const HooksSpec&, const HooksSpec&) = default;
};

// A replay: the real coordinator, schedule, transport and (if requested) codecs. Instead of
// computing, stages sleep for times that were measured elsewhere. A replay does not train: it has
// no losses, and its checkpoints hold no parameters.
struct ReplaySpec {
  // Times to encode and decode one boundary tensor, whatever the codec's parameters.
  struct CodecTimes {
    std::string codec;  // "tah", "fixed"
    absl::Duration encode, decode;
    friend bool operator==(const CodecTimes&, const CodecTimes&) = default;
  };
  std::string source;  // required; what was measured, on which device: shown with every result
  // Times of one microbatch; required for blocks.
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

  // Null: no codec of this family was measured. Points into `codec_times`.
  const CodecTimes* TimesOf(const CodecSpec& codec) const;
};

struct RunSpec {
  std::string name;  // required; [a-z0-9-], 1..40 characters
  ModelSpec model;
  WeightsSpec weights;
  DataSpec data;
  ValidationSpec validation;
  SamplesSpec samples;
  TrainSpec train;
  PipelineSpec pipeline;
  ReplicasSpec replicas;
  GroupSpec group;
  std::optional<TransportKind> transport;  // of the links without an exception; nullopt: auto
  LinksSpec links;
  CheckpointSpec checkpoint;
  RecoverySpec recovery;
  VerifySpec verify;
  AuditSpec audit;
  HooksSpec hooks;
  std::optional<ReplaySpec> replay;
  std::optional<TopologySpec> topology;  // what a local cluster emulates for this run
  // A stage gives up a neighbour that is silent on their link for peer_timeout. The coordinator
  // ends the session of a worker that is silent for session_timeout; the worker trains on. If no
  // new session begins within reattach_timeout, the coordinator counts the worker as lost.
  absl::Duration peer_timeout = absl::Seconds(10);
  absl::Duration session_timeout = absl::Seconds(10);
  absl::Duration reattach_timeout = absl::Seconds(60);

  // The same run with `count` replicas. With 1, all other keys of ReplicasSpec are at their initial
  // values.
  RunSpec WithReplicas(uint32_t count) const;
  // Returns the run with the number of replicas that a plan chose for auto. `count` divides
  // train.microbatches; each replica gets its part of them.
  RunSpec WithChosenReplicas(uint32_t count) const;
  // Counts the microbatches of all replicas.
  uint64_t MicrobatchesPerStep() const { return uint64_t{replicas.count} * train.microbatches; }
  uint64_t TokensPerStep() const { return replicas.count * TokensOfReplica(); }
  // Tokens of one replica in a step.
  uint64_t TokensOfReplica() const {
    return uint64_t{train.microbatches} * train.microbatch_size * model.context;
  }
  friend bool operator==(const RunSpec&, const RunSpec&) = default;
};

// Finds the texts or data sets that a run names, and returns their size in bytes. An error, of any
// code, has a line for each problem. ParseRunSpec calls all these functions on its own thread.
using FindTexts = std::function<StatusOr<uint64_t>(const RunSpec& spec)>;

// Reads the model in the folder `from` (the value of model.from). An error has a line for each
// problem.
struct FoundModel {
  ModelSpec model;  // complete; `tied` as published
  // The ranks that trained it, where each has channels of its own: group.tensor and group.p. 1 and
  // 1: the folder is a published model.
  uint32_t ranks = 1;
  double shared_channels = 1;
};
using FindModel = std::function<StatusOr<FoundModel>(const std::string& from)>;

// Reads the adapters of `model` in the folder `from` (the value of train.lora.from). An error has a
// line for each problem.
using FindAdapters =
    std::function<StatusOr<LoraSpec>(const std::string& from, const ModelSpec& model)>;

// Parses `yaml` (the text of the file called `file_name` in messages) and then applies `overrides`
// ("train.steps=20", the CLI's --set). One kInvalidArgument has all errors, a line each. Empty
// `find_texts`: the texts are not checked. Empty `find_model`: the file itself must have the keys
// that `model.from` would fill in. The same holds for `find_adapters` and `train.lora.from`.
StatusOr<RunSpec> ParseRunSpec(std::string_view yaml, std::string_view file_name,
                               const std::vector<std::string>& overrides,
                               const FindTexts& find_texts = {}, const FindModel& find_model = {},
                               const FindAdapters& find_adapters = {});

// Returns an override ("SECTION={...}") with all keys of the section `section` ("train.lora"),
// for programs that cannot read the folders from which the section's values came.
std::string SectionOverride(std::string_view section, const RunSpec& spec);

// The run file with every key written out; ParseRunSpec of it gives an equal spec. Keys that do not
// apply to this run are comments. `longhaul plan --show-config` prints it, and the control plane
// carries it.
std::string ToYaml(const RunSpec& spec);

namespace config {
// Returns the groups that the run file's group may become on workers with `most_ranks` devices:
// fewer ranks first, then fewer parts of experts. Without "auto" only the group itself.
std::vector<GroupSpec> GroupsLeftOpen(const RunSpec& spec, uint32_t most_ranks);
}  // namespace config

// Returns the files that the spec's globs match, sorted and without duplicates. Globs are relative
// to `folder`. kInvalidArgument names every glob that matches nothing and every file that cannot be
// read.
StatusOr<std::vector<std::string>> ExpandDataFiles(const RunSpec& spec, const std::string& folder);

// Checks that need the size of the data: `tokens` must suffice for one training window (context + 1
// tokens) and, if validation is on, for one validation window. kInvalidArgument has all errors.
Status CheckDataSize(const RunSpec& spec, uint64_t tokens);

}  // namespace longhaul
