// Lists the blobs of the coordinator's store that a run names. Pure. Workers may not fetch other
// blobs (rights.cc), and `longhaul gc` deletes them (garbage.cc).
#pragma once

#include <optional>
#include <span>
#include <string>

#include "coordinator/state/run_record.h"

namespace longhaul::coordinator {

// Calls `name(sha256)` for each blob, `list(sha256)` for each blob that names others; either may be
// empty.
template <class Name, class List>
void EachBlobName(const RunSpec& spec, std::span<const v1::DataFile> files,
                  const std::optional<DataSet>& data, const Name& name, const List& list) {
  for (const v1::DataFile& file : files) name(file.sha256());
  list(spec.weights.sha256);
  list(spec.data.list_sha256);
  if (!data) return;
  // For data sets the token file lists their chunks; else it is the text itself and names no blobs.
  if (spec.data.list_sha256.empty()) {
    name(data->token_file_sha256);
  } else {
    list(data->token_file_sha256);
  }
}

}  // namespace longhaul::coordinator
