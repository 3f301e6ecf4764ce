// Lists the blobs of the coordinator's store that a run names. Pure. Workers may not fetch other
// blobs (rights.cc), and `longhaul gc` deletes them (garbage.cc).
#pragma once

#include <optional>
#include <span>
#include <string>

#include "coordinator/state/run_record.h"

namespace longhaul::coordinator {

// Calls `list(sha256)` for each blob that lists other blobs, and `name(sha256)` for each further
// blob. An empty string stands for a blob that the run does not have.
template <class Name, class List>
void EachBlobName(const RunSpec& spec, std::span<const v1::DataFile> files,
                  const std::optional<DataSet>& data, const Name& name, const List& list) {
  for (const v1::DataFile& file : files) name(file.sha256());
  list(spec.weights.sha256);
  list(spec.data.list_sha256);
  if (!data) return;
  // If the run has data sets, the token file is a list of their chunks. Otherwise the token file
  // holds tokens.
  if (spec.data.list_sha256.empty()) {
    name(data->token_file_sha256);
  } else {
    list(data->token_file_sha256);
  }
}

}  // namespace longhaul::coordinator
