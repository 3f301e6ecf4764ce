// Opens the stores with which this worker reads objects at addresses (base/remote/store.h): models
// and data sets. A worker has no credentials of its own, unless its owner wants so. It then reads
// objects at addresses that the coordinator signs, and public objects as everybody may.
//
// Thread-safe.
#pragma once

#include <memory>
#include <string_view>

#include "base/http/host_rules.h"
#include "base/ids.h"
#include "base/remote/settings.h"
#include "base/remote/store.h"
#include "base/status.h"
#include "worker/epoch/object_signer.h"

namespace longhaul::worker {

class RemoteObjects {
 public:
  // `hosts`: which servers may be asked. `signer`: null if `settings` have this machine's own
  // credentials, which then are used for all objects.
  RemoteObjects(remote::Settings settings, http::HostRules hosts,
                std::shared_ptr<ObjectSigner> signer);

  // A store for the objects that this run names. It asks the servers of `hosts` alone, also where
  // the coordinator signs an address.
  std::shared_ptr<const remote::Store> OpenFor(const RunId& run) const;
  // Null: this worker uses its own credentials.
  const std::shared_ptr<ObjectSigner>& signer() const { return signer_; }

 private:
  const remote::Settings settings_;
  const http::HostRules hosts_;
  const std::shared_ptr<ObjectSigner> signer_;
};

// What a person may do about an error of these stores; begins with "; ", or is "".
std::string_view AdviceOnAddresses(const Status& error);

}  // namespace longhaul::worker
