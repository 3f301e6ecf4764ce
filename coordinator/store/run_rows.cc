#include "coordinator/store/run_rows.h"

#include "coordinator/store/rows.h"

namespace longhaul::coordinator {

Status RunRows::Prepare(sqlite::Database& database) {
  LH_ASSIGN_OR_RETURN(upsert_, database.Prepare(kUpsertRun));
  LH_ASSIGN_OR_RETURN(update_, database.Prepare(kUpdateRun));
  return absl::OkStatus();
}

Status RunRows::Write(const RunRecord& record) {
  std::string large = LargeColumnsSha256(record);
  std::string& stored = large_[record.id];
  if (stored == large) {
    BindSmallColumns(record, &update_);
    return update_.Run();
  }
  stored = std::move(large);
  BindRun(record, &upsert_);
  return upsert_.Run();
}

}  // namespace longhaul::coordinator
