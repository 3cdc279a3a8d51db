# Installs the program and the library: one archive, the public headers, and what find_package and
# pkg-config need to find them.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(objects)
foreach(part base store plan transport transport_shm transport_uring transport_verbs transport_backends
    multicast probes sync)
  if(TARGET selmcast_${part})
    list(APPEND objects $<TARGET_OBJECTS:selmcast_${part}>)
  endif()
endforeach()
# Of the backends that were built.
set(optional_libraries)
set(SELMCAST_PC_OPTIONAL)
if(SELMCAST_HAVE_URING)
  list(APPEND optional_libraries $<INSTALL_INTERFACE:uring>)
  string(APPEND SELMCAST_PC_OPTIONAL " liburing")
endif()
if(SELMCAST_HAVE_VERBS)
  list(APPEND optional_libraries $<INSTALL_INTERFACE:ibverbs> $<INSTALL_INTERFACE:rdmacm>)
  string(APPEND SELMCAST_PC_OPTIONAL " libibverbs librdmacm")
endif()
add_library(selmcast_archive STATIC ${objects})
set_target_properties(selmcast_archive PROPERTIES OUTPUT_NAME selmcast EXPORT_NAME selmcast
  LINKER_LANGUAGE CXX)
target_include_directories(selmcast_archive INTERFACE
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(selmcast_archive INTERFACE cxx_std_20)
target_link_libraries(selmcast_archive INTERFACE Threads::Threads
  ${optional_libraries} $<INSTALL_INTERFACE:isal> $<INSTALL_INTERFACE:xxhash> $<INSTALL_INTERFACE:hwy>)

install(TARGETS selmcast RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS selmcast_archive EXPORT selmcast-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/selmcast DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
# Those of base/ that the public headers include.
install(FILES base/check.h base/result.h base/shared_memory.h base/unique_fd.h base/units.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/selmcast/base)
# In the tree headers name those of base/ by their path from the root. Installed, that path must begin
# with selmcast/: a folder of ours on users' include path would shadow the system's <memory.h>.
install(CODE "set(installed \"${CMAKE_INSTALL_INCLUDEDIR}/selmcast\")")
install(CODE [[
  if(NOT IS_ABSOLUTE "${installed}")
    set(installed "${CMAKE_INSTALL_PREFIX}/${installed}")
  endif()
  file(GLOB headers "$ENV{DESTDIR}${installed}/*.h" "$ENV{DESTDIR}${installed}/base/*.h")
  foreach(header IN LISTS headers)
    file(READ "${header}" text)
    string(REPLACE "#include \"base/" "#include \"selmcast/base/" text "${text}")
    file(WRITE "${header}" "${text}")
  endforeach()
]])
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/selmcast)
install(EXPORT selmcast-targets NAMESPACE selmcast:: DESTINATION ${package_folder})
configure_package_config_file(cmake/selmcast-config.cmake.in selmcast-config.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(selmcast-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/selmcast-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/selmcast-config-version.cmake DESTINATION ${package_folder})
# The prefix is taken from where the file lies, so that an installation can be moved.
file(RELATIVE_PATH SELMCAST_PREFIX_FROM_PKGCONFIG
  ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(cmake/selmcast.pc.in selmcast.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/selmcast.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
