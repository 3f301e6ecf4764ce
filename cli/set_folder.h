// The folder of a data set: on this machine, or at an address (base/remote/address.h). Files at an
// address are read with the credentials of the user's environment.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace longhaul::cli {

class SetFolder {
 public:
  virtual ~SetFolder() = default;
  // For messages.
  virtual std::string Shown(const std::string& file) const = 0;
  // data::Source::folder: an absolute path, or an address; on a hub with the commit.
  virtual std::string Name() const = 0;
  // `file`: relative to the folder. Both block.
  virtual StatusOr<std::string> ReadWhole(const std::string& file, uint64_t limit) const = 0;
  virtual StatusOr<uint64_t> SizeOf(const std::string& file) const = 0;
};

// `from`: a path, relative to `base`, or an address. Asks the server of an address for a list,
// where it has lists. kInvalidArgument: the address has a query, which would be a secret in the
// records of a run. Other errors: those of FindSettings and of the store.
StatusOr<std::unique_ptr<SetFolder>> OpenSetFolder(const std::string& from,
                                                   const std::string& base);

}  // namespace longhaul::cli
