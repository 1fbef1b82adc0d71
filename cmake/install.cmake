# cmake --install: headers, libraries, the program, its model, and what
# find_package(regard) reads.
include(CMakePackageConfigHelpers)

set(rooms core attention nn io trace model onnx measure picture view)
list(TRANSFORM rooms PREPEND regard_ OUTPUT_VARIABLE room_targets)
install(TARGETS ${room_targets} EXPORT regard_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS regard_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/regard DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY models DESTINATION ${CMAKE_INSTALL_DATADIR}/regard)
install(EXPORT regard_targets NAMESPACE regard:: FILE regardTargets.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/regard)

# regard::regard: everything. regard::attention alone is the operator.
configure_package_config_file(cmake/regardConfig.cmake.in ${CMAKE_BINARY_DIR}/regardConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/regard)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/regardConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/regardConfig.cmake ${CMAKE_BINARY_DIR}/regardConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/regard)
