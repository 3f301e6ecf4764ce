#include "coordinator/store/upgrade.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/store/messages_column.h"
#include "coordinator/store/rows.h"
#include "coordinator/store/schema.h"
#include "longhaul/v1/plan.pb.h"
#include "longhaul/v1/store1.pb.h"

namespace longhaul::coordinator {
namespace {

// Version 1 knew one data transport.
constexpr char kTransportOf1[] = "ucx";

// `Old` with its stages' addresses made endpoints; nullopt where `bytes` are something else.
template <class New, class Old>
std::optional<New> From1(Old old) {
  std::vector<std::vector<std::string>> addresses;
  for (v1::Store1StagePlan& stage : *old.mutable_stages()) {
    addresses.emplace_back(stage.data_addresses().begin(), stage.data_addresses().end());
    stage.clear_data_addresses();
  }
  New upgraded;
  if (!upgraded.ParseFromString(old.SerializeAsString())) return std::nullopt;
  for (size_t i = 0; i < addresses.size(); ++i) {
    v1::DataEndpoint& endpoint = *upgraded.mutable_stages(static_cast<int>(i))->add_endpoints();
    endpoint.set_transport(kTransportOf1);
    for (const std::string& address : addresses[i]) endpoint.add_addresses(address);
  }
  return upgraded;
}

Status UpgradeRow(const sqlite::Statement& row, sqlite::Statement* update) {
  const std::string id(row.Bytes(0));
  const auto unreadable = [&](std::string_view what) {
    return absl::DataLossError(fmt::format("run {}: its {} cannot be read", id, what));
  };
  if (row.IsNull(1)) {
    update->BindNull(1);
  } else {
    v1::Store1Plan old;
    const std::string_view bytes = row.Bytes(1);
    if (!old.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      return unreadable("plan");
    }
    const auto plan = From1<v1::Plan>(std::move(old));
    if (!plan) return unreadable("plan");
    update->BindBlob(1, plan->SerializeAsString());
  }
  std::vector<v1::Store1CheckpointManifest> old;
  if (!Split(row.Bytes(2), &old)) return unreadable("list of checkpoints");
  std::vector<v1::CheckpointManifest> manifests;
  for (v1::Store1CheckpointManifest& one : old) {
    const auto manifest = From1<v1::CheckpointManifest>(std::move(one));
    if (!manifest) return unreadable("list of checkpoints");
    manifests.push_back(*manifest);
  }
  update->BindBlob(2, Join(manifests));
  update->Bind(3, id);
  return update->Run();
}

Status UpgradeFrom1(sqlite::Database* database) {
  LH_ASSIGN_OR_RETURN(sqlite::Statement rows,
                      database->Prepare("SELECT id, plan, checkpoints FROM runs"));
  LH_ASSIGN_OR_RETURN(sqlite::Statement update,
                      database->Prepare("UPDATE runs SET plan = ?, checkpoints = ? WHERE id = ?"));
  while (true) {
    LH_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return absl::OkStatus();
    LH_RETURN_IF_ERROR(UpgradeRow(rows, &update));
  }
}

// What this version could not use afterwards is not upgraded.
Status CheckRows(sqlite::Database* database) {
  LH_ASSIGN_OR_RETURN(sqlite::Statement rows, database->Prepare(kSelectRuns));
  while (true) {
    LH_ASSIGN_OR_RETURN(const bool more, rows.Next());
    if (!more) return absl::OkStatus();
    LH_RETURN_IF_ERROR(ReadRun(rows).status());
  }
}

}  // namespace

Status UpgradeStore(sqlite::Database* database, uint32_t version) {
  if (version == kStoreSchemaVersion) return absl::OkStatus();
  LH_RETURN_IF_ERROR(database->Execute("BEGIN IMMEDIATE"));
  Status status = UpgradeFrom1(database);
  if (status.ok()) status = CheckRows(database);
  if (status.ok()) {
    status = database->Execute(fmt::format("PRAGMA user_version={}", kStoreSchemaVersion));
  }
  if (status.ok()) status = database->Execute("COMMIT");
  if (status.ok()) {
    spdlog::info(
        "the state store was upgraded from schema version {} to {}; older coordinators "
        "refuse it now",
        version, kStoreSchemaVersion);
    return status;
  }
  const Status rolled_back = database->Execute("ROLLBACK");
  return rolled_back.ok() ? status : rolled_back;
}

}  // namespace longhaul::coordinator
