// Lists the blobs (files named by their SHA-256) that a run needs from the coordinator's store.
// Pure. Workers may fetch no other blobs (queries/rights.h), and `longhaul gc` deletes the others
// (queries/garbage.h).
#pragma once

#include <optional>
#include <span>
#include <string>

#include "coordinator/state/run_record.h"

namespace longhaul::coordinator {

// Calls `list(sha256)` for each blob that lists further blobs, and `name(sha256)` for each other
// blob. `sha256` is empty if the run has no such blob. `files`: the run's text files. `data`:
// nullopt before the data is prepared.
template <class Name, class List>
void EachBlobName(const RunSpec& spec, std::span<const v1::DataFile> files,
                  const std::optional<DataSet>& data, const Name& name, const List& list) {
  for (const v1::DataFile& file : files) name(file.sha256());
  name(spec.samples.pieces_sha256);
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
