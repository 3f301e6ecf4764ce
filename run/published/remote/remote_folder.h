// Published models at addresses: on a hub, in S3 or Google Cloud Storage, on web servers. A list of
// such weights (run/published/weights.h) is made without reading the tensors. Each reader of a
// tensor makes sure that its file is still the one that the list means.
//
// Threads: one each. Calls block. Errors: those of base/remote/store.h, and those below.
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/http/client.h"
#include "base/remote/address.h"
#include "base/remote/store.h"
#include "base/status.h"
#include "run/published/folder.h"
#include "run/published/weights.h"

namespace longhaul::published {

// Opens the folder at an address, with or without a '/' at its end. On a hub it asks for the
// revision's commit, and reads that commit from then on. `store` must outlive the result.
// kInvalidArgument: the address has a query, which would be a secret in the records of a run. Look
// of the result returns kFailedPrecondition if the server has no tag for a file.
StatusOr<std::unique_ptr<ModelFolder>> OpenRemoteFolder(const remote::Store& store,
                                                        remote::Address address,
                                                        const http::Call& call = {});

// Reads tensors of a list of weights with an address.
class RemoteTensors {
 public:
  // `store` must outlive the result. kInvalidArgument: the list has no valid address.
  static StatusOr<RemoteTensors> Open(const remote::Store& store, const Weights& weights);

  // Reads a tensor of the list that is remote. kDataLoss: its file has changed since the list was
  // made.
  StatusOr<std::vector<std::byte>> Read(const Tensor& tensor, const http::Call& call = {});

 private:
  RemoteTensors(const remote::Store& store, remote::Address folder,
                std::vector<FileVersion> versions)
      : store_(&store), folder_(std::move(folder)), versions_(std::move(versions)) {}

  const remote::Store* store_;
  remote::Address folder_;
  std::vector<FileVersion> versions_;
  std::set<std::string> unchanged_;  // files that were looked at
};

}  // namespace longhaul::published
