// Checks bundles with the rules of `operator-sdk bundle validate` and of its suite for OperatorHub. Not among them is the
// rule that pulls the operator's image.
package main

import (
	"fmt"
	"os"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
	validator "github.com/operator-framework/api/pkg/validation/interfaces"
)

func main() {
	validators := append(validator.Validators{}, validation.DefaultBundleValidators...)
	validators = append(validators, validation.OperatorHubV2Validator, validation.StandardCapabilitiesValidator,
		validation.StandardCategoriesValidator, validation.AlphaDeprecatedAPIsValidator,
		validation.GoodPracticesValidator)
	failed := false
	for _, directory := range os.Args[1:] {
		bundle, err := manifests.GetBundleFromDir(directory)
		if err != nil {
			fmt.Println(directory, err)
			os.Exit(1)
		}
		objects := bundle.ObjectsToValidate()
		for _, object := range bundle.Objects {
			objects = append(objects, object)
		}
		for _, result := range validators.Validate(objects...) {
			for _, found := range result.Warnings {
				fmt.Println("warning:", result.Name, found.Error())
			}
			for _, found := range result.Errors {
				fmt.Println("error:", result.Name, found.Error())
				failed = true
			}
		}
	}
	if failed {
		os.Exit(1)
	}
	fmt.Println("the bundle is valid")
}
