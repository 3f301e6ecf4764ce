// Uploads an export (export_command.h) to a hub, to S3 or to Google Cloud Storage, with the
// credentials of the user's environment.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/http/client.h"
#include "base/remote/address.h"
#include "base/remote/store.h"
#include "base/status.h"
#include "cli/terminal.h"

namespace longhaul::cli {

class ExportUpload {
 public:
  // Checks all that can be known before there are files: that `to` is the address of a folder on a
  // hub of models, in S3 or Google's storage; credentials; the right to write there; and, unless
  // `overwrite`, that a folder in S3 or Google's storage is empty. A hub's repository or branch
  // that is missing is made, and `terminal` hears of it.
  static StatusOr<std::unique_ptr<ExportUpload>> Prepare(const std::string& to, bool overwrite,
                                                         const Terminal& terminal,
                                                         const http::Call& call);

  // Uploads all files of `folder`, without those of its subfolders. Files of an older export that
  // this one does not have are removed, so that no reader mixes both. `summary`: title of a hub's
  // commit.
  Status Send(const std::string& folder, const std::string& summary, const Terminal& terminal,
              const http::Call& call) const;
  // For people.
  std::string to() const { return remote::ToString(to_); }

 private:
  ExportUpload(remote::Address to, std::unique_ptr<remote::Store> store,
               std::vector<std::string> older)
      : to_(std::move(to)), store_(std::move(store)), older_(std::move(older)) {}

  const remote::Address to_;
  const std::unique_ptr<remote::Store> store_;
  const std::vector<std::string> older_;  // files of an older export
};

// The name of a file in an export that says what the model is, or that has its tensors. Other
// files, such as a README, are the user's.
bool IsOfExport(const std::string& name);

}  // namespace longhaul::cli
