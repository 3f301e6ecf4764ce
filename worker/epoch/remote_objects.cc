#include "worker/epoch/remote_objects.h"

#include <utility>

namespace longhaul::worker {

RemoteObjects::RemoteObjects(remote::Settings settings, http::HostRules hosts,
                             std::shared_ptr<ObjectSigner> signer)
    : settings_(std::move(settings)), hosts_(std::move(hosts)), signer_(std::move(signer)) {}

std::shared_ptr<const remote::Store> RemoteObjects::OpenFor(const RunId& run) const {
  remote::Options options{.hosts = hosts_};
  if (signer_ != nullptr) {
    options.ask_signed = [signer = signer_, run](const remote::Address& object,
                                                 const http::Call& call) {
      return signer->Read(run, object, call);
    };
  }
  return std::make_shared<const remote::Store>(settings_, options);
}

std::string_view AdviceOnAddresses(const Status& error) {
  if (!absl::IsPermissionDenied(error)) return "";
  return "; longhaul-worker reads what everybody may read, and what the coordinator signs with its "
         "own credentials (HF_TOKEN, AWS_ACCESS_KEY_ID and their like in the environment of "
         "longhaul-coordinator). Its flag --remote-credentials has it use the credentials of its "
         "machine, --remote-host allows a server, and --remote-network a private network";
}

}  // namespace longhaul::worker
