#include "proto/rpc/caller.h"

#include <grpc/grpc_security_constants.h>

#include <string>
#include <string_view>

#include "proto/identity/certificate.h"

namespace longhaul {

StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context, absl::Time now) {
  const auto shown = context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (shown.empty()) {
    return absl::UnauthenticatedError(
        "this coordinator expects a member's certificate and the call carries none; join with a "
        "join token (--token-file)");
  }
  const StatusOr<MemberCertificate> certificate =
      ReadMemberCertificate(std::string_view(shown.front().data(), shown.front().size()));
  if (!certificate.ok()) {
    return absl::UnauthenticatedError(std::string(Message(certificate.status())));
  }
  if (now >= certificate->not_after) {
    return Unauthenticated("the certificate of {} has ended; join again with a join token",
                           certificate->member.name);
  }
  return Caller{certificate->member, certificate->not_after, certificate->key_sha256};
}

std::string CertificateOf(const grpc::ServerContextBase& context) {
  const auto shown = context.auth_context()->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  return shown.empty() ? "" : std::string(shown.front().data(), shown.front().size());
}

}  // namespace longhaul
