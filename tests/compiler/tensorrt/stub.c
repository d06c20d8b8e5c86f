/* Stand-in for the TensorRT libraries: the symbols that the Python bindings leave undefined, so that they import and
 * their signatures can be read on a machine that has no TensorRT. Nothing can be built with it: every factory is null. */
void *createInferBuilder_INTERNAL(void) { return 0; }
void *createInferRefitter_INTERNAL(void) { return 0; }
void *createInferRuntime_INTERNAL(void) { return 0; }
void *createNvOnnxParser_INTERNAL(void) { return 0; }
void *createNvOnnxParserRefitter_INTERNAL(void) { return 0; }
void *getBuilderPluginRegistry(void) { return 0; }
void *getPluginRegistry(void) { return 0; }
int getNvOnnxParserVersion(void) { return 0; }
int initLibNvInferPlugins(void) { return 0; }
