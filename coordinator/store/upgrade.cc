#include "coordinator/store/upgrade.h"

#include <fmt/core.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "coordinator/store/messages_column.h"
#include "coordinator/store/schema.h"
#include "longhaul/v1/plan.pb.h"
#include "longhaul/v1/store2.pb.h"
#include "run/plan/chain.h"
#include "run/plan/plan.h"
#include "run/plan/proto/plan_proto.h"

namespace longhaul::coordinator {
namespace {

// Version 1 knew one data transport, and a stage's addresses were texts. Version 2 had endpoints.
// Both had stages and links as arrays, where now a plan is a graph of cells. Version 3 and before
// knew two places where a file of a checkpoint may lie, and of a run not how often it began again.
// Version 4 and before knew neither members nor owners of runs, and no run that changes its number
// of replicas.
constexpr char kTransportOf1[] = "ucx";

// False where `bytes` are something else.
bool ReadEndpoints(const v1::Store2Stage& stage, uint32_t version, Cell* cell) {
  if (version == 1) {
    Endpoint endpoint{.transport = kTransportOf1, .addresses = {}};
    endpoint.addresses.assign(stage.endpoints().begin(), stage.endpoints().end());
    cell->endpoints.push_back(std::move(endpoint));
    return true;
  }
  for (const std::string& bytes : stage.endpoints()) {
    v1::DataEndpoint endpoint;
    if (!endpoint.ParseFromString(bytes)) return false;
    cell->endpoints.push_back(FromProto(endpoint));
  }
  return true;
}

using OldStages = google::protobuf::RepeatedPtrField<v1::Store2Stage>;

// A stage's number was its place. nullopt where one cannot be read.
std::optional<std::vector<Cell>> CellsOf(const OldStages& stages, uint32_t version) {
  const auto count = static_cast<uint32_t>(stages.size());
  std::vector<Cell> cells;
  for (const v1::Store2Stage& stage : stages) {
    const auto place = static_cast<uint32_t>(cells.size());
    Cell& cell = cells.emplace_back();
    cell.id = {.replica = 0, .stage = place};
    cell.worker = WorkerId(stage.worker_id());
    cell.incarnation = Incarnation(stage.incarnation());
    cell.worker_name = stage.worker_name();
    cell.layers = {.first = stage.first_layer(), .count = stage.layers()};
    cell.roles = {.embedding = chain::IsFirst(place), .head = chain::IsLast(place, count)};
    cell.devices = {0};
    cell.setting = {.depth = stage.depth(),
                    .activation_lead = stage.activation_lead(),
                    .threads = stage.threads()};
    cell.memory_bytes = stage.memory_bytes();
    cell.message_record_bytes = stage.message_record_bytes();
    cell.message_journal_bytes = stage.message_journal_bytes();
    if (!ReadEndpoints(stage, version, &cell)) return std::nullopt;
  }
  return cells;
}

template <class Values>
double ValueAt(const Values& values, int place) {
  return place < values.size() ? values[place] : 0;
}

std::vector<CellEstimate> EstimatesOf(const v1::Store2Plan& old) {
  std::vector<CellEstimate> estimates;
  for (int place = 0; place < old.stages_size(); ++place) {
    const v1::Store2Stage& stage = old.stages(place);
    estimates.push_back(
        {.forward_seconds = stage.forward_seconds(),
         .backward_seconds = stage.backward_seconds(),
         .optimizer_seconds = stage.optimizer_seconds(),
         .memory_available_bytes = stage.memory_available_bytes(),
         .memory_per_flight_bytes = stage.memory_per_flight_bytes(),
         .depth_by_memory = stage.depth_by_memory(),
         .depth_reason = stage.depth_reason(),
         .egress_bits_per_second = ValueAt(old.prediction().egress_bits_per_second(), place),
         .ingress_bits_per_second = ValueAt(old.prediction().ingress_bits_per_second(), place)});
  }
  return estimates;
}

void AddLinks(const v1::Store2Plan& old, Plan* plan) {
  plan->assignment.edges =
      chain::MakeEdges(1, static_cast<uint32_t>(plan->assignment.cells.size()));
  plan->edges.resize(plan->assignment.edges.size());
  for (const v1::Store2Link& link : old.links()) {
    if (link.boundary() >= plan->assignment.edges.size()) continue;
    Edge& edge = plan->assignment.edges[link.boundary()];
    edge.transport = link.transport();
    edge.to_dials = link.downstream_dials();
    edge.forward = {.codec = link.forward_codec(),
                    .bytes = link.forward_bytes(),
                    .bits_per_second = link.forward_bits_per_second(),
                    .latency_seconds = link.forward_latency_seconds()};
    edge.backward = {.codec = link.backward_codec(),
                     .bytes = link.backward_bytes(),
                     .bits_per_second = link.backward_bits_per_second(),
                     .latency_seconds = link.backward_latency_seconds()};
    plan->edges[link.boundary()] = {.forward = {.encode_seconds = link.forward_encode_seconds(),
                                                .decode_seconds = link.forward_decode_seconds()},
                                    .backward = {.encode_seconds = link.backward_encode_seconds(),
                                                 .decode_seconds = link.backward_decode_seconds()}};
  }
}

Prediction PredictionOf(const v1::Store2Prediction& old) {
  Prediction prediction;
  prediction.step_seconds = old.step_seconds();
  prediction.lower_bound_seconds = old.lower_bound_seconds();
  prediction.bottleneck = old.bottleneck();
  prediction.unlimited_depth_step_seconds = old.unlimited_depth_step_seconds();
  prediction.order_reason = old.order_reason();
  for (const v1::PredictedCell& stage : old.stages()) {
    prediction.cells.push_back({.compute_seconds = stage.compute_seconds(),
                                .codec_seconds = stage.codec_seconds(),
                                .wait_above_seconds = stage.wait_above_seconds(),
                                .wait_below_seconds = stage.wait_below_seconds(),
                                .optimizer_seconds = stage.optimizer_seconds(),
                                .egress_share = stage.egress_share(),
                                .ingress_share = stage.ingress_share()});
  }
  for (const v1::Store2PredictedLink& link : old.links()) {
    prediction.edges.push_back({.forward = {.busy_share = link.forward_busy_share(),
                                            .rate_share = link.forward_rate_share()},
                                .backward = {.busy_share = link.backward_busy_share(),
                                             .rate_share = link.backward_rate_share()}});
  }
  return prediction;
}

std::optional<Plan> PlanOf(const v1::Store2Plan& old, uint32_t version) {
  std::optional<std::vector<Cell>> cells = CellsOf(old.stages(), version);
  if (!cells) return std::nullopt;
  Plan plan;
  plan.assignment.run = RunId(old.run_id());
  plan.assignment.epoch = Epoch(old.epoch());
  plan.assignment.start_step = old.start_step();
  plan.assignment.run_yaml = old.run_yaml();
  plan.assignment.data = FromProto(old.data());
  plan.assignment.cells = *std::move(cells);
  plan.cells = EstimatesOf(old);
  AddLinks(old, &plan);
  plan.prediction = PredictionOf(old.prediction());
  plan.explanation = old.explanation();
  plan.retunes = old.retunes();
  plan.retune_reason = old.retune_reason();
  return plan;
}

// nullopt where one cannot be read.
std::optional<v1::Store3Manifest> To3(const v1::Store2Manifest& old, uint32_t version) {
  const std::optional<std::vector<Cell>> cells = CellsOf(old.stages(), version);
  if (!cells) return std::nullopt;
  v1::Store3Manifest manifest;
  manifest.set_run_id(old.run_id());
  manifest.set_epoch(old.epoch());
  manifest.set_step(old.step());
  *manifest.mutable_files() = old.files();
  for (const Cell& cell : *cells) *manifest.add_cells() = ToProto(cell);
  manifest.set_committed_unix_ms(old.committed_unix_ms());
  return manifest;
}

v1::CheckpointManifest ManifestOf(const v1::Store3Manifest& old) {
  v1::CheckpointManifest manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_run_id(old.run_id());
  manifest.set_epoch(old.epoch());
  manifest.set_step(old.step());
  *manifest.mutable_cells() = old.cells();
  manifest.set_committed_unix_ms(old.committed_unix_ms());
  for (const v1::Store3File& before : old.files()) {
    v1::CheckpointFile& file = *manifest.add_files();
    file.set_name(before.name());
    file.set_bytes(before.bytes());
    file.set_sha256(before.sha256());
    file.set_stage(before.stage());
    v1::ShardHolder& writer = *file.add_holders();
    writer.set_worker_id(before.worker_id());
    writer.set_problem(before.problem());
    for (const v1::Cell& cell : old.cells()) {
      if (cell.worker_id() == before.worker_id()) writer.set_worker_name(cell.worker_name());
    }
    if (before.copied()) file.add_holders();
  }
  return manifest;
}

// The columns of a row that change.
struct Columns {
  std::optional<std::string> plan;
  std::string checkpoints;
};

// nullopt where one cannot be read.
std::optional<Columns> ColumnsOf(const sqlite::Statement& row, uint32_t version) {
  Columns columns;
  if (!row.IsNull(1) && version >= 3) columns.plan = std::string(row.Bytes(1));
  if (!row.IsNull(1) && version < 3) {
    v1::Store2Plan old;
    const std::string_view bytes = row.Bytes(1);
    if (!old.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return std::nullopt;
    const std::optional<Plan> plan = PlanOf(old, version);
    if (!plan) return std::nullopt;
    columns.plan = ToProto(*plan).SerializeAsString();
  }
  std::vector<v1::Store3Manifest> old;
  if (version >= 3) {
    if (!Split(row.Bytes(2), &old)) return std::nullopt;
  } else {
    std::vector<v1::Store2Manifest> older;
    if (!Split(row.Bytes(2), &older)) return std::nullopt;
    for (const v1::Store2Manifest& one : older) {
      std::optional<v1::Store3Manifest> manifest = To3(one, version);
      if (!manifest) return std::nullopt;
      old.push_back(*std::move(manifest));
    }
  }
  std::vector<v1::CheckpointManifest> manifests;
  for (const v1::Store3Manifest& one : old) manifests.push_back(ManifestOf(one));
  columns.checkpoints = Join(manifests);
  return columns;
}

constexpr char kColumnsOfAttempts[] = R"sql(
ALTER TABLE runs ADD COLUMN stop_asked INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN attempts INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN best_step INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN last_error TEXT NOT NULL DEFAULT '';
)sql";

constexpr char kOwnerColumn[] = "ALTER TABLE runs ADD COLUMN owner TEXT NOT NULL DEFAULT ''";
constexpr char kColumnsOfReplicas[] = R"sql(
ALTER TABLE runs ADD COLUMN resize_asked INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN replicas_wanted INTEGER NOT NULL DEFAULT 0;
)sql";

// A version that is wrong, in a store that has them, is put right.
Status AddColumns(sqlite::Database* database) {
  constexpr std::pair<std::string_view, const char*> kAdded[] = {
      {"stop_asked", kColumnsOfAttempts},
      {"owner", kOwnerColumn},
      {"resize_asked", kColumnsOfReplicas}};
  for (const auto& [first, add] : kAdded) {
    LH_ASSIGN_OR_RETURN(
        const int64_t there,
        database->QueryInt(
            fmt::format("SELECT count(*) FROM pragma_table_info('runs') WHERE name='{}'", first)));
    if (there == 0) LH_RETURN_IF_ERROR(database->Execute(add));
  }
  return database->Execute(kMemberTables);
}

// A row that cannot be read stays as it is: Store::LoadRuns sets it aside.
Status UpgradeRows(sqlite::Database* database, uint32_t version) {
  LH_ASSIGN_OR_RETURN(sqlite::Statement rows,
                      database->Prepare("SELECT id, plan, checkpoints FROM runs"));
  LH_ASSIGN_OR_RETURN(sqlite::Statement update,
                      database->Prepare("UPDATE runs SET plan = ?, checkpoints = ? WHERE id = ?"));
  while (true) {
    LH_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return absl::OkStatus();
    const std::optional<Columns> columns = ColumnsOf(rows, version);
    if (!columns) continue;
    if (columns->plan) {
      update.BindBlob(1, *columns->plan);
    } else {
      update.BindNull(1);
    }
    LH_RETURN_IF_ERROR(update.BindBlob(2, columns->checkpoints).Bind(3, rows.Bytes(0)).Run());
  }
}

}  // namespace

Status UpgradeStore(sqlite::Database* database, uint32_t version) {
  if (version == kStoreSchemaVersion) return absl::OkStatus();
  LH_RETURN_IF_ERROR(database->Execute("BEGIN IMMEDIATE"));
  Status status = version < 4 ? UpgradeRows(database, version) : absl::OkStatus();
  if (status.ok()) status = AddColumns(database);
  if (status.ok()) {
    status = database->Execute(fmt::format("PRAGMA user_version={}", kStoreSchemaVersion));
  }
  if (status.ok()) status = database->Execute("COMMIT");
  if (status.ok()) {
    LogInfo(
        "the state store was upgraded from schema version {} to {}; older coordinators "
        "refuse it now",
        version, kStoreSchemaVersion);
    return status;
  }
  const Status rolled_back = database->Execute("ROLLBACK");
  return rolled_back.ok() ? status : rolled_back;
}

}  // namespace longhaul::coordinator
