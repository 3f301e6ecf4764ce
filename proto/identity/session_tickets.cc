#include "proto/identity/session_tickets.h"

#include <fmt/core.h>
#include <openssl/bio.h>
#include <openssl/conf.h>
#include <openssl/crypto.h>
#include <openssl/err.h>

#include <memory>
#include <string>

#include "base/log.h"

namespace longhaul {
namespace {

struct FreeConf {
  void operator()(CONF* conf) const { NCONF_free(conf); }
};
using Conf = std::unique_ptr<CONF, FreeConf>;

// Returns what this machine's file says of all TLS contexts of a process, a line each.
std::string SystemTlsSettings() {
  const std::unique_ptr<char, void (*)(char*)> path(CONF_get1_default_config_file(),
                                                    [](char* text) { OPENSSL_free(text); });
  const Conf file(NCONF_new(nullptr));
  std::string settings;
  if (path == nullptr || NCONF_load(file.get(), path.get(), nullptr) <= 0) return settings;
  const char* section = nullptr;
  for (const char* name : {"openssl_conf", "ssl_conf", "system_default"}) {
    section = NCONF_get_string(file.get(), section, name);
    if (section == nullptr) return settings;
  }
  const auto* const values = NCONF_get_section(file.get(), section);
  for (int i = 0; i < sk_CONF_VALUE_num(values); ++i) {
    const CONF_VALUE* const value = sk_CONF_VALUE_value(values, i);
    settings += fmt::format("{} = {}\n", value->name, value->value);
  }
  return settings;
}

}  // namespace

// For each ticket a server reads the client's certificate again: a tenth of what a crowd of workers
// costs it. gRPC 1.51 has no setting for that, so all TLS contexts of the process get it.
void LeaveOutSessionTickets() {
  OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, nullptr);
  const std::string text = fmt::format(
      "longhaul = modules\n[modules]\nssl_conf = contexts\n[contexts]\nsystem_default = settings\n"
      "[settings]\n{}NumTickets = 0\n",
      SystemTlsSettings());
  const std::unique_ptr<BIO, int (*)(BIO*)> bio(
      BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free);
  const Conf conf(NCONF_new(nullptr));
  const bool done = NCONF_load_bio(conf.get(), bio.get(), nullptr) > 0 &&
                    CONF_modules_load(conf.get(), "longhaul", 0) > 0;
  ERR_clear_error();  // of what the machine's file lacks
  if (!done) LogDebug("servers of this process make TLS session tickets");
}

}  // namespace longhaul
